/* Runs a fuzz target once for each file named: regression replay of kept inputs without libFuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f) {
            perror(argv[i]);
            return 1;
        }
        uint8_t *data = malloc(1 << 24);
        size_t n = fread(data, 1, 1 << 24, f);
        fclose(f);
        LLVMFuzzerTestOneInput(data, n);
        free(data);
    }
    return 0;
}
