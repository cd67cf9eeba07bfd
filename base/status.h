/* Status codes and error text: how every room reports a failure.
 *
 * A function returns OK (0) or a negative status, and fills `struct err` where the cause is known.
 * Text rule: lower case, no full stop, what failed first, the limit and the value.
 * Thread: any; a struct err belongs to one caller. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

/* name, text. The server maps each to an HTTP status and an OpenAI error type (server/errors.def). */
#define STATUS_TABLE(X)                                                                            \
    X(ERR_INVALID, -1, "invalid request")                                                          \
    X(ERR_UNSUPPORTED, -2, "unsupported")                                                          \
    X(ERR_NOT_FOUND, -3, "not found")                                                              \
    X(ERR_TOO_LARGE, -4, "too large")                                                              \
    X(ERR_CONTEXT_LENGTH, -5, "context length exceeded")                                           \
    X(ERR_QUEUE_FULL, -6, "queue full")                                                            \
    X(ERR_BUSY, -7, "not ready")                                                                   \
    X(ERR_DRAINING, -8, "shutting down")                                                           \
    X(ERR_TIMEOUT, -9, "timed out")                                                                \
    X(ERR_CANCELLED, -10, "cancelled")                                                             \
    X(ERR_NO_MEMORY, -11, "out of memory")                                                         \
    X(ERR_IO, -12, "input or output failed")                                                       \
    X(ERR_FORMAT, -13, "bad file format")                                                          \
    X(ERR_NUMERIC, -14, "not a finite number")                                                     \
    X(ERR_INTERNAL, -15, "internal error")                                                         \
    X(ERR_DEADLINE, -16, "deadline passed")

enum status {
    OK = 0,
#define X(name, value, text) name = value,
    STATUS_TABLE(X)
#undef X
};

enum { ERR_TEXT_CAP = 512, ERR_PARAM_CAP = 256, ERR_CODE_CAP = 48 };

/* `param` names the request field or option at fault, `code` a machine-readable reason such as
 * "context_length_exceeded"; both may be empty. All strings are NUL-terminated valid UTF-8. */
struct err {
    enum status status;
    char text[ERR_TEXT_CAP];
    char param[ERR_PARAM_CAP];
    char code[ERR_CODE_CAP];
};

/* Fills e (NULL is allowed), clears param and code, returns status: `return err_set(e, ERR_IO, ...)`. */
enum status err_set(struct err *e, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As err_set, with the field at fault and an optional code (either may be NULL). */
enum status err_set_field(struct err *e, enum status status, const char *param, const char *code,
                          const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Prepends "text: " to e's text. */
void err_prefix(struct err *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
