/* The text of a chat's choice on its way to the client: reasoning, content and calls of tools. Thread: the loop of
 * its job. */
#ifndef SERVER_API_LISTEN_H
#define SERVER_API_LISTEN_H

#include "server/api/job.h"

bool listen_needed(const struct job *j); /* otherwise all text is content */
void listen_begin(struct job *j, struct choice *c);
void listen_text(struct choice *c, struct str text);
void listen_end(struct choice *c);
/* Not streaming: members of the message from its content's value on. */
void listen_add_message(const struct choice *c, struct buf *out);

/* ---- of job.c: pieces of the stream ---- */
void job_begin_chunk(const struct job *j, struct buf *out, uint32_t index);
void job_end_chunk(const struct job *j, struct buf *out);
void job_add_chunk(struct job *j, struct buf *out, uint32_t index, struct str text);

#endif
