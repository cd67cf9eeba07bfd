/* Prefixes that come from the disk prefix cache and go there; see disk.c. */
#ifndef SCHEDULER_DISK_H
#define SCHEDULER_DISK_H

#include "scheduler/sched.h"

enum status disk_init(struct sched *s, struct err *e);
void disk_free(struct sched *s);
/* A request that starts and is resident: true when its first sequence's next blocks are fetched. */
bool disk_fetches(struct sched *s, struct req *q);
/* Its blocks [0, n_tokens), which are in the prefix index, go to the disk bit by bit. */
void disk_save(struct sched *s, const struct req *q, uint32_t n_tokens);
/* Takes answers, moves fetches on, copies a block to be saved. */
void disk_turn(struct sched *s);
/* q is to end: true when that must wait for its fetch, which ends soon; disk_turn ends q then. */
bool disk_delays_end(struct req *q);
void disk_stop(struct sched *s); /* no fetch goes on, no save is left; blocks until that is so */
/* keys: [n_pin], then [n_unpin]. */
void disk_pins(struct sched *s, const struct kv_key *keys, uint32_t n_pin, uint32_t n_unpin);
void disk_gauges(struct sched *s);

#endif
