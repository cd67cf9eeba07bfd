/* Checked parameters -> requests for the scheduler. Thread: any. */
#ifndef SERVER_API_PREPARE_H
#define SERVER_API_PREPARE_H

#include "engine/grammar/grammar.h"
#include "server/api/fields.h"
#include "server/api/job.h"

struct exchange;
struct service;

/* Parses ex->body into *doc (the caller frees it) and *p; on a refusal fills ex->reply, returns it. */
enum status prepare_params(struct exchange *ex, enum api api, struct json_doc **doc,
                           struct params *p);
/* Makes ex->job. Refuses what can never be queued, a list of more prompts than may run and wait together,
 * and what there is no memory for. */
enum status prepare_job(struct exchange *ex, enum api api, const struct params *p,
                        uint32_t n_prompts, struct err *e);
/* Checks the model's name. */
enum status prepare_model(struct exchange *ex, const struct params *p, struct err *e);
/* Values that need more than their own range: stop, logit_bias, n, combinations. Everything a request
 * has beside its prompt is put into r. */
enum status prepare_request(struct exchange *ex, enum api api, const struct params *p,
                            struct request *r, struct err *e);
/* Whose memory the grammars are that the call asks for. */
struct gram_owner prepare_owner(const struct exchange *ex);
/* A request without a prompt yet. */
struct request *prepare_new(void);
/* Takes the tokens into r, checks them against the context, clamps max_tokens, sizes the ring. When
 * the prompt is too long it fills ex->reply, since that answer has more members. */
enum status prepare_prompt(struct exchange *ex, enum api api, const struct params *p,
                           struct request *r, struct tokens *tokens, struct err *e);
/* A request that only computes these tokens, for the prefix cache. Fills ex->reply as above. */
enum status prepare_fill(struct exchange *ex, struct request *r, struct tokens *tokens,
                         struct err *e);
/* Token ids of a JSON array, checked against the vocabulary; path names it in errors. */
enum status prepare_ids(const struct service *service, const struct json *array, const char *path,
                        struct tokens *out, struct err *e);

#endif
