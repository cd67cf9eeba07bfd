/* The table of kinds of client memory; see ledger.h. */
#include "config/ledger.h"

const struct ledger_kind ledger_kinds[N_LEDGER_KINDS] = {
#define X(id, name, share, doc) {name, share},
#include "config/ledger.def"
#undef X
};

_Static_assert(N_LEDGER_KINDS <= (int)LEDGER_MAX_KINDS, "a hold has room for every kind");
