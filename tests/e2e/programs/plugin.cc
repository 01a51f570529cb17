// A plugin that asks for more memory than there is and goes on.
#include <cstddef>
#include <new>
#include <string>
#include <vector>

extern "C" int probe() {
    volatile std::size_t absurd = std::size_t(1) << 62;
    int caught = 0;
    try {
        // The compiler leaves out what nobody could see.
        char *volatile block = new char[absurd];
        delete[] block;
    } catch (const std::bad_alloc &) {
        caught = 1;
    }
    std::vector<std::string> texts(1000, std::string(100, 'x'));
    return caught * 1000 + int(texts.size());
}
