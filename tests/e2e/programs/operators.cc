// Uses C++'s operators in all of their forms, streams' own blocks, and asks for more than there is. Built with OWN it replaces the two from
// which C++'s library makes all others, and tells how often they were called.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#ifdef OWN
static long made, gone;

void *operator new(std::size_t size) {
    ++made;
    if (void *block = std::malloc(size)) return block;
    throw std::bad_alloc();
}

void operator delete(void *block) noexcept {
    ++gone;
    std::free(block);
}
#endif

struct alignas(256) Wide {
    char bytes[512];
};

static int handled;

static void handler() {
    ++handled;
    std::set_new_handler(nullptr);
}

int main() {
    // More than any machine has, by way of memory that the compiler cannot see through.
    volatile std::size_t absurd = std::size_t(1) << 62;
    int thrown = 0;
    std::set_new_handler(handler);
    try {
        // The compiler leaves out what nobody could see.
        char *volatile block = new char[absurd];
        delete[] block;
    } catch (const std::bad_alloc &) {
        ++thrown;
    }
    try {
        ::operator delete(::operator new(absurd, std::align_val_t(128)), std::align_val_t(128));
    } catch (const std::bad_alloc &) {
        ++thrown;
    }
    char *volatile none = new (std::nothrow) char[absurd];
    std::printf("handled %d thrown %d none %d\n", handled, thrown, none == nullptr);

#ifdef OWN
    made = gone = 0;
    int *volatile one = new int(1);
    delete one;
    int *volatile ten = new int[10];
    delete[] ten;
    one = new (std::nothrow) int(2);
    delete one;
    ten = new (std::nothrow) int[10];
    delete[] ten;
    ::operator delete(::operator new(100), std::size_t(100));
    std::printf("made %ld gone %ld\n", made, gone);
#endif

    std::vector<std::unique_ptr<Wide>> wide;
    for (int i = 0; i < 1000; i++) wide.push_back(std::make_unique<Wide>());
    std::uintptr_t misaligned = 0;
    for (auto &one : wide) misaligned |= reinterpret_cast<std::uintptr_t>(one.get()) % alignof(Wide);
    std::printf("misaligned %d\n", misaligned != 0);

    std::map<std::string, std::vector<long>> lists;
    for (long i = 0; i < 100000; i++) lists["a key that is not short at all " + std::to_string(i % 5000)].push_back(i * i);
    std::vector<double> large(4 << 20);
    std::vector<std::vector<double>> rows(2000, std::vector<double>(1000));
    unsigned long sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (long i = 0; i < 2000; i++) {
        for (double &number : rows[i]) number = double(i);
        std::string text(100, char('a' + i % 26));
        std::vector<std::string> texts(10, text);
        for (auto &one : texts) sum += (unsigned char)one[99];
        sum += (unsigned long)rows[i][i % 1000];
    }
    for (auto &list : lists)
        for (long number : list.second) sum = sum * 31 + (unsigned long)number;
    for (std::size_t i = 0; i < large.size(); i += 512) large[i] = double(i);
    for (std::size_t i = 0; i < large.size(); i += 512) sum += (unsigned long)large[i];
    std::printf("sum %lx\n", sum);

    // A stream's block is made here and given back in C++'s library.
    std::ifstream file("/proc/self/stat");
    std::string word;
    int words = 0;
    while (file >> word) ++words;
    std::printf("words %d\n", words > 20);
    return 0;
}
