/* Conversations: checks `messages`, joins text parts, renders the chat template, encodes.
 * Thread: any. */
#ifndef SERVER_API_MESSAGES_H
#define SERVER_API_MESSAGES_H

#include "base/json.h"
#include "base/status.h"
#include "engine/text/text.h"
#include "server/api/fields.h"

struct service;

/* Appends the messages as the template wants them: content one string, role developer as system,
 * arguments of tool calls as objects where they parse. absent: JSON text for the content that an
 * assistant's tool calls come without. ERR_INVALID or ERR_UNSUPPORTED with the JSON path of what is
 * wrong in param. */
enum status messages_normalise(const struct json *messages, const char *absent, struct buf *out,
                               struct err *e);

/* The prompt tokens of a conversation. ERR_INVALID when the model has no chat template or the
 * template refuses. */
enum status messages_encode(const struct service *service, const struct params *p,
                            struct tokens *out, struct err *e);

#endif
