/* A program in C that loads a plugin in C++, whose library no other part of it has, and calls it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
    void *plugin = count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*probe)(void) = plugin ? (int (*)(void))dlsym(plugin, "probe") : NULL;
    if (!probe) {
        printf("%s\n", dlerror());
        return 1;
    }
    printf("%d\n", probe());
    return 0;
}
