/* A thread that processes a bounded queue of jobs in order, for the tiers: every job that was
 * pushed is answered exactly once, in the order of the pushes.
 *
 * A job that exceeds the deadline is answered as failed although the thread is still working on it
 * (a disk that hangs). This is safe because a job touches its owner's memory only while it *holds*
 * its ticket, which is brief (memcpy); after the answer the owner can therefore reuse that memory
 * at once. Waiting for a disk happens without holding, on a buffer of the copier's user:
 *
 *   WAITING ──kv_ticket_hold──► HELD ──────────┐
 *      │ ▲────kv_ticket_let_go────┘            │ run returns
 *      │ └──────────────────────────────► DONE, FAILED ──► answered by kv_copier_pop
 *      └─ deadline passed, in kv_copier_pop ──► GIVEN_UP: answered; its place is freed later
 *
 * Two threads: the owner (new, push, pop, step, stop, free) and the copier's own (run). With
 * threaded = false the owner does the work by calling kv_copier_step. Private to this folder. */
#ifndef KVPOOL_COPIER_H
#define KVPOOL_COPIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct kv_copier;
struct kv_ticket;

/* How a job ended: late = given up at its deadline. */
enum kv_copy_end { KV_COPY_DONE, KV_COPY_FAILED, KV_COPY_LATE };

struct kv_copier_options {
    const char *name; /* name of the thread, at most 15 bytes */
    uint32_t max_jobs; /* limit of places: jobs pushed whose place is not yet free again */
    size_t job_bytes;
    uint64_t deadline_ns; /* from the push to the answer; 0: none */
    bool threaded;
    bool drain; /* kv_copier_stop finishes the queued jobs; otherwise they fail */
    /* Does one job; true when it succeeded. Called for given-up jobs too: kv_ticket_hold returns false.
     * */
    bool (*run)(void *arg, const void *job, struct kv_ticket *ticket);
    void *arg;
    void (*wake)(
        void *arg); /* may be NULL; called by the thread when there may be something to pop */
    void *wake_arg;
};

enum status kv_copier_new(const struct kv_copier_options *o, struct kv_copier **out, struct err *e);
void kv_copier_free(struct kv_copier *c); /* stops it first; NULL is allowed */
/* Ends the thread; kv_copier_pop returns the remaining answers. No push after this. */
void kv_copier_stop(struct kv_copier *c);
uint32_t kv_copier_room(const struct kv_copier *c); /* pushes that would succeed now */
bool kv_copier_push(struct kv_copier *c, const void *job);
bool kv_copier_pop(struct kv_copier *c, void *job, enum kv_copy_end *end);
bool kv_copier_step(struct kv_copier *c); /* not threaded: does one job; false when there is none */
/* When the oldest unanswered job will be given up; 0: no deadline, or nothing is out. */
uint64_t kv_copier_deadline_ns(const struct kv_copier *c);

/* Called within run. Hold: the owner waits for this job regardless of the deadline, so its memory
 * may be touched; false: the job was given up, touch nothing. */
bool kv_ticket_hold(struct kv_ticket *ticket);
void kv_ticket_let_go(struct kv_ticket *ticket);
/* Leaves a number for the owner, which reads the one of the job it popped last; 0 unless run left one. */
void kv_ticket_note(struct kv_ticket *ticket, int note);
int kv_copier_note(const struct kv_copier *c);

#endif
