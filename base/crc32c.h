/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as in RFC 3720: tells torn and flipped bytes of
 * files of ours from sound ones. No defence against somebody who means to forge. Thread: any. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC of n bytes that follow bytes whose CRC is crc (0: none). */
uint32_t crc32c(uint32_t crc, const void *p, size_t n);
/* The same in plain C, whatever the processor offers. */
uint32_t crc32c_plain(uint32_t crc, const void *p, size_t n);

#endif
