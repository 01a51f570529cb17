// Blocks of all small sizes, each aligned as libc, C++ and OpenMP promise, also where a type of one byte is aligned to 16; and blocks that are
// made shorter and longer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <new>
#include <omp.h>

extern "C" void *GOMP_alloc(size_t, size_t, uintptr_t);

struct alignas(16) Small {
    char byte;
};

static int off(void *block, size_t alignment) { return block == nullptr || (uintptr_t)block % alignment != 0; }

static int wrong(void) {
    int wrong = 0;
    for (size_t size = 0; size < 200; size++) {
        for (size_t alignment = 8; alignment <= 4096; alignment *= 2) {
            void *block = nullptr;
            wrong += posix_memalign(&block, alignment, size) != 0 || off(block, alignment);
            free(block);
            wrong += off(block = aligned_alloc(alignment, size), alignment);
            free(block);
            wrong += off(block = memalign(alignment, size), alignment);
            free(block);
        }
        void *block = malloc(size);
        wrong += off(block, 16) || malloc_usable_size(block) < size;
        for (size_t other = 1; other < 40; other++) {
            block = realloc(block, other);
            wrong += off(block, 16) || malloc_usable_size(block) < other;
            ((char *)block)[other - 1] = 1;
        }
        free(block);
        wrong += off(block = calloc(1, size), 16);
        free(block);
        wrong += off(block = operator new(size), 16);
        operator delete(block);
        wrong += off(block = operator new(size, std::align_val_t(16)), 16);
        operator delete(block, std::align_val_t(16));
        if (size == 0) continue;
        wrong += off(block = omp_alloc(size, omp_default_mem_alloc), 16);
        omp_free(block, omp_null_allocator);
        wrong += off(block = GOMP_alloc(16, size, 0), 16);
        omp_free(block, omp_null_allocator);
    }
    for (int i = 0; i < 100; i++) wrong += off(new Small, 16);
    // glibc frees the block.
    wrong += realloc(malloc(8), 0) != nullptr;
    return wrong;
}

int main() {
    int all = wrong();
#pragma omp parallel num_threads(2) reduction(+ : all)
    all += wrong();
    printf("%d\n", all);
    return 0;
}
