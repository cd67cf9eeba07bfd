/* The kinds of client memory, from ledger.def: LEDGER_<ID> in the calls of base/ledger.h. */
#ifndef CONFIG_LEDGER_H
#define CONFIG_LEDGER_H

#include "base/ledger.h"

enum ledger_kind_id {
#define X(id, name, share, doc) LEDGER_##id,
#include "config/ledger.def"
#undef X
    N_LEDGER_KINDS
};

extern const struct ledger_kind ledger_kinds[N_LEDGER_KINDS];

#endif
