/* One HTTP request and its answer, between the first handler call and the completed callback.
 * Belongs to its loop's thread, except while it waits for or has its turn in preparation (offload.h). */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/ledger.h"
#include "base/status.h"
#include "server/auth.h"
#include "server/errors.h"
#include "server/turns.h"

struct server;
struct service;
struct conn;
struct job;
struct question;
struct route;

enum { REQUEST_ID_CAP = 80, PATH_ARG_CAP = 256 };

enum exchange_stage {
    STAGE_READING, /* head and body */
    STAGE_OFFLOAD, /* waits for its turn, or its handler runs on another thread */
    STAGE_ASKED, /* the engine thread has its question */
    STAGE_PREPARED, /* the handler has run, or the question was answered */
    STAGE_RUNNING /* the scheduler has the job */
};

/* A whole answer. */
struct reply {
    bool set;
    int http;
    struct buf body; /* owned until it is sent */
    const char *content_type; /* static; NULL is application/json */
    uint32_t retry_after_s;
    char allow[64]; /* Allow header of 405 and OPTIONS; "" for none */
};

struct exchange {
    struct server *srv; /* borrows */
    const struct service *service; /* borrows; whose model the request names, else the first */
    struct conn *conn; /* borrows; the connection it came on */
    const struct route *route;
    char id[REQUEST_ID_CAP]; /* X-Request-Id */
    char path_arg[PATH_ARG_CAP];
    char path[128]; /* for the access log, cut */
    const char *method_label; /* static */
    bool head; /* HEAD: the same answer without its body */
    bool http11; /* chunked answers allowed */
    bool anthropic; /* carries anthropic-version: shapes of that API where they exist */
    bool close; /* Connection: close after the answer */
    bool gone; /* the client hung up */
    struct buf body; /* of the request */
    uint64_t n_announced; /* its length by the head; UINT64_MAX: not announced */
    uint64_t start_ns;
    uint64_t progress_ns; /* when the log last said how far its prompt is */
    struct buf ignored; /* value of X-Ignored-Params */
    struct auth_grant grant; /* the asking key's tenant; empty on routes without a key */
    struct ledger_hold held; /* memory taken for its body, its job and its answer */
    struct reply reply;
    struct job *job; /* owns; what was submitted, or will be */
    struct question *question; /* owns; for the engine thread, which fills it */
    struct turn turn; /* while it waits to be prepared */
    struct exchange *next; /* link in the loop's list of prepared ones */

    /* delivery (http.c, stream.c) */
    enum exchange_stage stage;
    bool suspended; /* libmicrohttpd leaves the connection alone; the loop watches its socket */
    bool streaming; /* the head is out: events are written directly */
    bool last_added; /* the last event is in the stash or sent */
    bool stream_ended; /* all of it is sent */
    bool queued; /* an answer was handed to libmicrohttpd */
    struct buf stash; /* framed bytes the socket did not take yet */
    size_t stash_at; /* of them, sent */
    uint64_t n_stash_held; /* memory taken for the stash */
    uint64_t n_swallowed; /* body bytes of a refused request */
    uint64_t n_sent; /* bytes of the answer */
    const char *end; /* for the access log; NULL: ok */
};

/* Both take the place of any earlier answer. */
void reply_json(struct exchange *ex, int http); /* reply.body is filled by the caller afterwards */
void reply_problem(struct exchange *ex, int problem_id, const struct err *e);
void reply_problem_extra(struct exchange *ex, int problem_id, const struct err *e,
                         const char *extra);
/* An ERR_CONTEXT_LENGTH with its numbers: tokens of the prompt, and how many would do. */
void reply_too_long(struct exchange *ex, const struct err *e, uint32_t n_prompt, uint32_t most);
/* As reply_problem with the id e->status. */
void reply_err(struct exchange *ex, const struct err *e);

/* A request id of ours. */
void exchange_new_id(struct server *srv, char id[REQUEST_ID_CAP]);

/* The answer is held until the client has taken it: a large one must find room, or a small one that says why
 * not takes its place. Small ones are part of what a connection takes. */
void reply_hold(struct exchange *ex);
void exchange_release(struct exchange *ex); /* not the job, not the question */

#endif
