/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as in RFC 3720: detects torn writes and
 * flipped bits in files that millrace wrote. It does not protect against deliberate forgery. Thread: any. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues a CRC: `crc` is that of the bytes before (0: there are none), followed by these n bytes. */
uint32_t crc32c(uint32_t crc, const void *p, size_t n);
/* The same in plain C on every processor. */
uint32_t crc32c_plain(uint32_t crc, const void *p, size_t n);

#endif
