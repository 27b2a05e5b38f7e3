/* Both ways to use device memory: all at once at the start, and by the size of each input. */
#include "npumem.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                        \
    do {                                                                   \
        if ((call) != 0) {                                                 \
            fprintf(stderr, "%s: %s\n", #call, npumem_last_error());       \
            return 1;                                                      \
        }                                                                  \
    } while (0)

enum { HBM = 0, SRAM = 1 };

int main(int argc, char **argv) {
    npumem_memory *memory = npumem_memory_host(256u << 20, 1u << 20);
    if (memory == NULL) {
        fprintf(stderr, "%s\n", npumem_last_error());
        return 1;
    }
    if (argc > 1) CHECK(npumem_memory_record(memory, argv[1]));

    /* Once, at the start. */
    npumem_block weights, tile;
    CHECK(npumem_memory_enter(memory, "weights"));
    CHECK(npumem_memory_allocate(memory, HBM, 8u << 20, 0, &weights));
    CHECK(npumem_memory_allocate(memory, SRAM, 64u << 10, 64, &tile));
    CHECK(npumem_memory_exit(memory));
    memset(weights.address, 7, 8u << 20);

    /* By call: who allocates frees, at once when done. */
    for (int step = 0; step < 4; step++) {
        npumem_block input;
        CHECK(npumem_memory_allocate(memory, HBM, 1000u * (step + 1), 0, &input));
        memcpy(tile.address, weights.address, 1000);
        memcpy(input.address, tile.address, 1000);
        CHECK(npumem_memory_release(memory, HBM, input.handle));
        CHECK(npumem_memory_mark_step(memory, "step"));
        if (step == 3 && npumem_memory_release(memory, HBM, input.handle) == 0) {
            fprintf(stderr, "a double free was accepted\n");
            return 1;
        }
    }
    printf("double free: %s\n", npumem_last_error());
    npumem_block none;
    if (npumem_memory_allocate(memory, HBM, 1ull << 40, 0, &none) == 0) return 1;
    printf("too much: %s\n", npumem_last_error());

    npumem_statistics numbers;
    CHECK(npumem_memory_statistics(memory, HBM, &numbers));
    printf("live %llu in %llu blocks, %llu allocations\n", (unsigned long long)numbers.live,
           (unsigned long long)numbers.blocks, (unsigned long long)numbers.allocations);
    char report[512];
    npumem_memory_holders(memory, report, sizeof report);
    printf("holders: %s", report);
    CHECK(npumem_memory_flush(memory));

    /* What a framework's pluggable allocator calls. */
    void *tensor = npumem_malloc(4096, 0, NULL);
    if (tensor == NULL) return 1;
    memset(tensor, 1, 4096);
    npumem_free(tensor, 4096, 0, NULL);
    npumem_memory_destroy(memory);
    return 0;
}
