/* Pipes and sockets with paged memory: a read returns the bytes that are there, and datagrams stay whole. */
#include "check.h"
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/uio.h>
#include <poll.h>
static unsigned char *a;
static void *writer(void *p)
{
    int fd = *(int *)p;
    CHECK(write(fd, a, 8000000) == 8000000);
    close(fd);
    return 0;
}
static void *sender(void *p)
{
    int fd = *(int *)p;
    CHECK(send(fd, a, 3000000, 0) == 3000000);
    struct iovec v[2] = {{a, 1000000}, {a + 1000000, 1500000}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    CHECK(sendmsg(fd, &m, 0) == 2500000);
    return 0;
}
int main(void)
{
    a = malloc(LARGE);
    unsigned char *b = malloc(LARGE);
    fill(a, LARGE, 2);
    int p[2];
    CHECK(pipe(p) == 0);
    push_out();
    CHECK(write(p[1], a + 100, 60000) == 60000);
    CHECK(read(p[0], b + 3, LARGE - 3) == 60000 && same(b + 3, 60000, 100, 2));
    push_out();
    CHECK(write(p[1], a + 4090, 4096) == 4096);
    CHECK(read(p[0], b + 4090, 4096) == 4096 && same(b + 4090, 4096, 4090, 2));
    fcntl(p[0], F_SETFL, O_NONBLOCK);
    CHECK(read(p[0], b, LARGE) == -1 && errno == EAGAIN);
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    push_out();
    CHECK(write(p[1], a, LARGE) == 65536);
    CHECK(write(p[1], a, LARGE) == -1 && errno == EAGAIN);
    close(p[0]);
    signal(SIGPIPE, SIG_IGN);
    CHECK(write(p[1], a, LARGE) == -1 && errno == EPIPE);
    close(p[1]);
    CHECK(pipe(p) == 0);
    pthread_t t;
    CHECK(pthread_create(&t, 0, writer, &p[1]) == 0);
    size_t got = 0;
    for (ssize_t n; (n = read(p[0], b + got, LARGE - got)) > 0;)
        got += n;
    pthread_join(t, 0);
    CHECK(got == 8000000 && same(b, got, 0, 2));
    /* Stream sockets. */
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    CHECK(pthread_create(&t, 0, sender, &s[1]) == 0);
    memset(b, 0, 6000000);
    CHECK(recv(s[0], b, 3000000, MSG_WAITALL) == 3000000 && same(b, 3000000, 0, 2));
    struct iovec v[2] = {{b, 500000}, {b + 600000, 2000000}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    CHECK(recvmsg(s[0], &m, MSG_WAITALL) == 2500000);
    CHECK(same(b, 500000, 0, 2) && same(b + 600000, 2000000, 500000, 2));
    pthread_join(t, 0);
    /* A datagram stays one datagram, over however many pages. */
    int d[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, d) == 0);
    push_out();
    CHECK(send(d[1], a + 77, 100000, 0) == 100000 && write(d[1], a, 10) == 10);
    push_out();
    CHECK(recv(d[0], b, LARGE, 0) == 100000 && same(b, 100000, 77, 2));
    CHECK(recv(d[0], b, LARGE, 0) == 10 && same(b, 10, 0, 2));
    struct iovec w[3] = {{a, 40000}, {a + 1000000, 1}, {a + 40001, 40000}};
    CHECK(writev(d[1], w, 3) == 80001);
    CHECK(recvfrom(d[0], b, LARGE, 0, 0, 0) == 80001 && same(b, 40000, 0, 2) && same(b + 40001, 40000, 40001, 2));
    CHECK(send(d[1], a, 20000, 0) == 20000);
    CHECK(recv(d[0], b, 5000, MSG_TRUNC) == 20000 && same(b, 5000, 0, 2));
    /* Addresses and poll structures in paged memory. */
    struct sockaddr_un *u = (void *)(b + 5000);
    memset(u, 0, sizeof *u);
    u->sun_family = AF_UNIX;
    snprintf(u->sun_path, sizeof u->sun_path, "%s/socket%d", ".", getpid());
    push_out();
    int l = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(l, (void *)u, sizeof *u) == 0 && listen(l, 1) == 0);
    int c = socket(AF_UNIX, SOCK_STREAM, 0);
    push_out();
    CHECK(connect(c, (void *)u, sizeof *u) == 0);
    struct pollfd *f = (void *)(b + 800000);
    f->fd = l;
    f->events = POLLIN;
    push_out();
    CHECK(poll(f, 1, 1000) == 1 && f->revents == POLLIN);
    socklen_t *n = (void *)(b + 900000);
    *n = sizeof *u;
    push_out();
    CHECK(accept(l, (void *)(b + 1000000), n) >= 0);
    unlink(u->sun_path);
    puts("good");
}
