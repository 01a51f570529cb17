// A library with an allocator of its own, as jemalloc's is made: `operator new` takes a block from it without a call that others could replace,
// and `operator delete` calls `free` by name.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace {

constexpr std::size_t bytes = 256 << 20;
alignas(4096) char memory[bytes];
std::size_t used;

// Blocks have their size in front of them and are never used again.
void *take(std::size_t size, std::size_t alignment) {
    std::size_t wanted = size + alignment + 16;
    if (size > bytes) return nullptr;
    std::size_t from = __atomic_fetch_add(&used, (wanted + 15) / 16 * 16, __ATOMIC_RELAXED);
    if (from + wanted > bytes) return nullptr;
    std::uintptr_t at = (reinterpret_cast<std::uintptr_t>(memory + from) + 16 + alignment - 1) & ~(alignment - 1);
    reinterpret_cast<std::size_t *>(at)[-1] = size;
    return reinterpret_cast<void *>(at);
}

bool is_own(const void *block) { return block >= memory && block < memory + bytes; }

}  // namespace

extern "C" {

void *malloc(std::size_t size) { return take(size, 16); }

void free(void *block) {
    if (block && !is_own(block)) __builtin_trap();
}

void *calloc(std::size_t n, std::size_t size) { return n && size > bytes / n ? nullptr : take(n * size, 16); }

void *realloc(void *block, std::size_t size) {
    void *other = take(size, 16);
    if (block && other) {
        std::size_t have = static_cast<std::size_t *>(block)[-1];
        std::memcpy(other, block, have < size ? have : size);
    }
    return other;
}

void *memalign(std::size_t alignment, std::size_t size) { return take(size, alignment < 16 ? 16 : alignment); }

void *aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }

int posix_memalign(void **to, std::size_t alignment, std::size_t size) {
    *to = memalign(alignment, size);
    return *to ? 0 : 12;
}
}

void *operator new(std::size_t size) {
    void *block = take(size, 16);
    if (!block) throw std::bad_alloc();
    return block;
}

void *operator new[](std::size_t size) { return operator new(size); }

void operator delete(void *block) noexcept { free(block); }
void operator delete[](void *block) noexcept { free(block); }
void operator delete(void *block, std::size_t) noexcept { free(block); }
void operator delete[](void *block, std::size_t) noexcept { free(block); }
