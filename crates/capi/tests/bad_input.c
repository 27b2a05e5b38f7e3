/* Every kind of bad input through the C interface: each is refused with a text, and nothing changes. */
#include "npumem.h"

#include <stdio.h>
#include <string.h>

static int wrong;

/* The call must fail and say why. */
static void refused(const char *what, int status) {
    if (status == 0 || strlen(npumem_last_error()) == 0) {
        printf("%s: accepted, or refused without a text\n", what);
        wrong = 1;
    } else {
        printf("%s: %s\n", what, npumem_last_error());
    }
}

int main(void) {
    npumem_memory *memory = npumem_memory_host(64u << 20, 1u << 20);
    npumem_block kept, gone, none;
    if (memory == NULL || npumem_memory_allocate(memory, 0, 5000, 64, &kept) != 0) return 2;
    if (npumem_memory_allocate(memory, 0, 700, 0, &gone) != 0) return 2;
    if (npumem_memory_release(memory, 0, gone.handle) != 0) return 2;
    npumem_statistics before, after;
    if (npumem_memory_statistics(memory, 0, &before) != 0) return 2;

    refused("no memory", npumem_memory_allocate(NULL, 0, 1, 0, &none));
    refused("no block", npumem_memory_allocate(memory, 0, 1, 0, NULL));
    refused("nothing", npumem_memory_allocate(memory, 0, 0, 0, &none));
    refused("alignment", npumem_memory_allocate(memory, 0, 1, 3, &none));
    refused("beyond all addresses", npumem_memory_allocate(memory, 0, UINT64_MAX, 0, &none));
    refused("too much", npumem_memory_allocate(memory, 0, 1ull << 33, 0, &none));
    refused("no space", npumem_memory_allocate(memory, 7, 1, 0, &none));
    refused("double free", npumem_memory_release(memory, 0, gone.handle));
    refused("handle 0", npumem_memory_release(memory, 0, 0));
    refused("made up", npumem_memory_release(memory, 0, UINT64_MAX));
    refused("free in no space", npumem_memory_release(memory, 7, kept.handle));
    refused("no scope", npumem_memory_enter(memory, NULL));
    refused("no statistics", npumem_memory_statistics(memory, 0, NULL));
    refused("no path", npumem_memory_record(memory, NULL));
    npumem_memory_destroy(NULL);

    if (npumem_memory_statistics(memory, 0, &after) != 0) return 2;
    if (after.live != before.live || after.blocks != before.blocks || after.frees != before.frees ||
        after.allocations != before.allocations) {
        printf("a refusal changed the books\n");
        wrong = 1;
    }

    /* Out of memory at the same place each time, and never worse for it. */
    static npumem_block blocks[64];
    int first = 0;
    for (int round = 0; round < 3; round++) {
        int count = 0;
        while (count < 64 && npumem_memory_allocate(memory, 0, 3u << 20, 0, &blocks[count]) == 0) count++;
        if (round == 0) first = count;
        if (count == 0 || count == 64 || count != first) wrong = 1;
        while (count > 0) {
            count--;
            if (npumem_memory_release(memory, 0, blocks[count].handle) != 0) wrong = 1;
        }
    }
    if (!wrong) printf("filled 3 times alike, %d blocks\n", first);
    if (npumem_memory_release(memory, 0, kept.handle) != 0) wrong = 1;
    npumem_memory_destroy(memory);
    return wrong;
}
