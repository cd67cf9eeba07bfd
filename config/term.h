/* Text for a terminal: its width, and lines that fit it. Thread: any. */
#ifndef CONFIG_TERM_H
#define CONFIG_TERM_H

#include <stdio.h>

/* Columns of the terminal behind the file; COLUMNS or 100 when it is none. 40 to 200. */
int term_width(FILE *out);

/* Writes the words of text from column `at` on, in lines of at most `width` columns that begin at `indent`,
 * and ends the last line. A word longer than a line stands alone. */
void term_wrap(FILE *out, const char *text, int at, int indent, int width);

#endif
