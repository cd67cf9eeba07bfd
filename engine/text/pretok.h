/* Pre-tokenisers of byte-level vocabularies: text -> pieces that merges never cross.
 * The patterns are data (pretok.def), run by PCRE2. Read-only after pretok_new; any thread. */
#ifndef ENGINE_TEXT_PRETOK_H
#define ENGINE_TEXT_PRETOK_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct pretok;

/* name: a name of pretok.def. ERR_UNSUPPORTED names an unknown one, and what may stand in its place. */
enum status pretok_new(struct str name, struct pretok **out, struct err *e);
/* Sets ERR_UNSUPPORTED: problem, and that --tokenizer.pre chooses a rule, with the first name of each. */
enum status pretok_refuse(struct err *e, const char *problem);
void pretok_free(struct pretok *p);
/* Test hook: matches with the interpreter, as on a system that refuses to make code executable. */
void pretok_test_without_jit(struct pretok *p);

const char *pretok_name(const struct pretok *p);
/* What the published tokenizers of that name do when the file does not say. */
bool pretok_adds_bos(const struct pretok *p);
/* A piece that is a token as a whole becomes that token even if merges would not build it. */
bool pretok_whole_first(const struct pretok *p);

/* Per call scratch; zero-initialised is valid. */
struct pretok_work {
    void *match_data; /* owns */
    struct buf symbols; /* one byte a character of the text in work */
};
void pretok_work_release(struct pretok_work *w);

/* Calls emit for each piece in order; stops early when emit returns false. text: valid UTF-8. */
enum status pretok_split(const struct pretok *p, struct pretok_work *w, struct str text,
                         bool (*emit)(void *arg, struct str piece), void *arg, struct err *e);

#endif
