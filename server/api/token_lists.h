/* The fields of a request that name tokens or texts of tokens: stop_token_ids, logit_bias, allowed_token_ids, bad_words,
 * DRY and its breakers. Thread: any. */
#ifndef SERVER_API_TOKEN_LISTS_H
#define SERVER_API_TOKEN_LISTS_H

#include "scheduler/request.h"
#include "server/api/fields.h"

struct service;

/* Checks them and puts them into r, which owns the lists. */
enum status token_lists_read(const struct service *service, const struct params *p,
                             struct request *r, struct err *e);

#endif
