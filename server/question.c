/* Questions to the engine thread; see question.h. */
#include "server/question.h"

#include "base/mem.h"
#include "config/ledger.h"
#include "server/exchange.h"

struct question *question_new(struct exchange *ex, enum sched_ask_kind kind, uint32_t n_items,
                              void (*format)(struct question *q))
{
    static const size_t item_bytes[] = {[ASK_SEQUENCES] = sizeof(struct seq_view),
                                        [ASK_BLOCKS] = sizeof(struct block_view),
                                        [ASK_JOURNAL] = sizeof(struct journal_record)};
    struct err e;
    if (ledger_take(&ex->held, LEDGER_ANSWERS, n_items * item_bytes[kind], &e)) {
        reply_err(ex, &e);
        return NULL;
    }
    struct question *q = mem_zalloc(sizeof(*q));
    q->ex = ex;
    q->format = format;
    q->ask.kind = kind;
    q->ask.cap = n_items;
    q->ask.item.any = mem_alloc(mem_mul(n_items, item_bytes[kind]));
    ex->question = q;
    return q;
}

void question_free(struct question *q)
{
    if (!q)
        return;
    mem_free(q->ask.item.any);
    mem_free(q);
}

bool question_reply(struct question *q)
{
    struct err e;
    if (!q)
        return false;
    if (q->ask.status == OK) {
        q->format(q);
    } else {
        err_set(&e, q->ask.status, "the engine thread has ended");
        reply_err(q->ex, &e);
    }
    return true;
}
