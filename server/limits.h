/* Fixed bounds of the HTTP front end, beside the settings that can be changed. */
#ifndef SERVER_LIMITS_H
#define SERVER_LIMITS_H

enum {
    JSON_DEPTH = 64, /* containers inside one another in a body */
    JSON_NODES = 1 << 20, /* values in a body */
    MAX_PROMPTS = 256, /* prompts of one completions call */
    MAX_STOP_TOKENS = 64, /* stop_token_ids */
    MAX_BIAS = 4096, /* entries of logit_bias */
    MAX_WORDS = 128, /* bad_words */
    MAX_WORD_BYTES = 256, /* of one of them, or of a text in logit_bias */
    MAX_BREAKERS = 16, /* dry_sequence_breakers */
    MAX_BREAKER_BYTES = 40,
    HEADER_POOL_BYTES =
        16384, /* libmicrohttpd's memory of a connection: heads of request and answer */
    CONNECTION_BYTES = HEADER_POOL_BYTES + 8192, /* of it, the exchange and small answers with it */
    HEAD_MAX_BYTES = 12288, /* of it, for the request's head, see framing.h */
    ECHO_MAX_BYTES = 1024, /* of a header that an answer repeats */
    /* What is prepared on a loop is trivially small: bodies of so many bytes, so many a turn of the loop, and
     * an answer of so many bytes is formatted there. All else takes its turn in preparation. */
    LOOP_BODY_BYTES = 1 << 10,
    LOOP_BODIES = 8,
    LOOP_ANSWER_BYTES = 64 << 10,
    SWALLOW_FACTOR = 16, /* bodies of refused requests are read up to so many times the limit */
    OVERFLOW_MAX_TOKENS = 1 << 18, /* output of a choice with overflow=sinks */
    TAKE_BYTES = 64 << 10, /* output formatted in one go for a stream */
    SCARCE_TAKE_BYTES = 1 << 10 /* the same while memory for clients is short */
};

#endif
