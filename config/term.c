/* Lines that fit a terminal; see term.h. */
#include "config/term.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { LEAST = 40, MOST = 200, WITHOUT_TERMINAL = 100 };

int term_width(FILE *out)
{
    struct winsize size;
    int fd = fileno(out), n = 0;
    const char *columns = getenv("COLUMNS");
    if (fd >= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0)
        n = size.ws_col;
    if (n == 0 && columns)
        n = (int)strtol(columns, NULL, 10);
    if (n <= 0)
        return WITHOUT_TERMINAL;
    return n < LEAST ? LEAST : n > MOST ? MOST : n;
}

void term_wrap(FILE *out, const char *text, int at, int indent, int width)
{
    bool first = true; /* of its line */
    for (;;) {
        text += strspn(text, " ");
        int n = (int)strcspn(text, " ");
        if (n == 0)
            break;
        if (!first && at + 1 + n > width) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", n, text);
        at += n + !first;
        first = false;
        text += n;
    }
    fputc('\n', out);
}
