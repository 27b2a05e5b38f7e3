/* npumem: run-time memory for C. Link with libnpumem_c.
 *
 * Every function that returns int gives 0 on success; otherwise npumem_last_error() says what is wrong,
 * with the numbers and what to do. A double free and a stale handle are errors, never damage.
 * All functions may be called from several threads.
 */
#ifndef NPUMEM_H
#define NPUMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory: spaces with capacities, a pool in each, tracking over all. */
typedef struct npumem_memory npumem_memory;

/* A block as it is handed out. */
typedef struct npumem_block {
    uint64_t handle;  /* gives it back */
    uint64_t offset;  /* where in its space */
    void *address;    /* where on the device; host memory can be used through it */
} npumem_block;

/* The numbers of a space. */
typedef struct npumem_statistics {
    uint64_t live;          /* bytes asked for and not freed */
    uint64_t peak_live;
    uint64_t reserved;      /* bytes taken from the device */
    uint64_t peak_reserved;
    uint64_t largest_free;
    uint64_t blocks;
    uint64_t allocations;
    uint64_t frees;
    uint64_t failures;
} npumem_statistics;

/* Host memory as a device with two spaces: 0 is "hbm", 1 is "sram". NULL on failure. */
npumem_memory *npumem_memory_host(uint64_t hbm_bytes, uint64_t sram_bytes);

/* Ends it; blocks that are still live go with it. NULL is allowed. */
void npumem_memory_destroy(npumem_memory *memory);

/* Allocates; alignment is 0 or a power of two. */
int npumem_memory_allocate(npumem_memory *memory, uint32_t space, uint64_t bytes, uint64_t alignment,
                           npumem_block *block);

/* Frees by handle. */
int npumem_memory_release(npumem_memory *memory, uint32_t space, uint64_t handle);

/* Marks the end of a step, for the growth detector and the trace. */
int npumem_memory_mark_step(npumem_memory *memory, const char *name);

/* Opens and closes a named scope that allocations are attributed to. */
int npumem_memory_enter(npumem_memory *memory, const char *name);
int npumem_memory_exit(npumem_memory *memory);

/* Fills in the numbers of a space. */
int npumem_memory_statistics(npumem_memory *memory, uint32_t space, npumem_statistics *statistics);

/* Writes who holds what, the largest first, as text; gives the bytes needed, the closing zero included. */
size_t npumem_memory_holders(npumem_memory *memory, char *text, size_t size);

/* Records every call to a file; what was flushed survives a crash. */
int npumem_memory_record(npumem_memory *memory, const char *path);
int npumem_memory_flush(npumem_memory *memory);

/* What the last failed call of this thread said; empty before any. Valid until the thread's next failure. */
const char *npumem_last_error(void);

/* For torch.cuda.memory.CUDAPluggableAllocator("libnpumem_c.so", "npumem_malloc", "npumem_free").
 * One pool a device, on the host backend in this version: use it to try the interface and to record traces. */
void *npumem_malloc(ptrdiff_t size, int device, void *stream);
void npumem_free(void *pointer, ptrdiff_t size, int device, void *stream);

#ifdef __cplusplus
}
#endif
#endif
