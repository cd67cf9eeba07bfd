/* Handlers of the endpoints. Each fills ex->reply, or ex->job for work of the engine; none blocks
 * (but those of named prefixes, in preparation) or touches libmicrohttpd. Thread: the exchange's loop, or a thread of preparation (server/http/offload.h). */
#ifndef SERVER_API_API_H
#define SERVER_API_API_H

struct exchange;

void api_chat(struct exchange *ex);
void api_completions(struct exchange *ex);
void api_models(struct exchange *ex);
void api_model(struct exchange *ex);
void api_tokenize(struct exchange *ex);
void api_detokenize(struct exchange *ex);
void api_tokenizer_info(struct exchange *ex);
void api_grammar_check(struct exchange *ex);
void api_prefixes(struct exchange *ex);
void api_prefix(struct exchange *ex);
void api_prefix_put(struct exchange *ex);
void api_prefix_delete(struct exchange *ex);
void api_requests(struct exchange *ex);
void api_debug_kv(struct exchange *ex);
void api_debug_journal(struct exchange *ex);
void api_health(struct exchange *ex);
void api_ready(struct exchange *ex);
void api_version(struct exchange *ex);
void api_metrics(struct exchange *ex);

#endif
