/* The load of the gateway's benchmarks: one epoll loop that plays many clients over loopback.
 *
 * client follow ...   WebSocket connections that follow one run and check what they get: every sequence exactly once and
 *                     in order. The latency of an event counts from the instant that stands in its payload ("at <ns>", of
 *                     CLOCK_MONOTONIC), which is when it was due, not when it was made: a late publisher is a late event.
 * client http ...     keep-alive connections that ask for one path again and again.
 *
 * It prints "ready" when every connection follows, and at the end one JSON line. It is C because it must cost less than
 * what it measures; cpu_s in its result says what it did cost.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, BAD_USAGE = 2, BAD_SERVER = 3 };

/* --- time and latency -------------------------------------------------------------------------------------------- */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* A histogram with 64 buckets per power of two: exact below 64 ns, then 1.6 % wide. */
enum { SUB = 64, BUCKETS = SUB * 60 };
typedef struct {
    uint64_t count[BUCKETS], total, highest;
} Histogram;

static unsigned bucket_of(uint64_t value) {
    if (value < SUB) return (unsigned)value;
    unsigned shift = 57u - (unsigned)__builtin_clzll(value); /* so that value >> shift is in [64, 128) */
    return (shift + 1) * SUB + (unsigned)(value >> shift) - SUB;
}

static uint64_t top_of(unsigned bucket) {
    if (bucket < SUB) return bucket;
    unsigned shift = bucket / SUB - 1;
    return ((uint64_t)(bucket % SUB + SUB + 1) << shift) - 1;
}

static void record(Histogram *h, uint64_t value) {
    h->count[bucket_of(value)]++;
    h->total++;
    if (value > h->highest) h->highest = value;
}

/* The smallest value, in microseconds, that `share` of all do not exceed (to a bucket's width). */
static double percentile(const Histogram *h, double share) {
    uint64_t wanted = (uint64_t)(share * (double)h->total + 0.999999), seen = 0;
    for (unsigned b = 0; b < BUCKETS; b++) {
        seen += h->count[b];
        if (seen >= wanted && seen) return (double)(top_of(b) < h->highest ? top_of(b) : h->highest) / 1e3;
    }
    return 0;
}

static void print_histogram(const Histogram *h) {
    printf("{\"events\":%llu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}", (unsigned long long)h->total,
           percentile(h, 0.5), percentile(h, 0.99), (double)h->highest / 1e3);
}

/* --- what was asked for ------------------------------------------------------------------------------------------ */

enum { MARKS = 4 };
typedef struct {
    int port, clients, http, plain, window, credit, stalling;
    const char *run, *token, *path;
    uint64_t after, last, stall_after, marks[MARKS];
    int marked;
    double seconds, stall_seconds, warm;
} Options;

static Options ask = {.clients = 1, .path = "/v1/ws", .run = "", .token = "", .credit = -1, .seconds = 60};

static void usage(void) {
    fprintf(stderr,
            "client follow --port P --last SEQUENCE [--clients N] [--run ID --token T] [--path P] [--plain]\n"
            "              [--after SEQUENCE] [--seconds S] [--window EVENTS --credit FD] [--mark SEQUENCE]...\n"
            "              [--stalling K --stall-after SEQUENCE --stall-seconds S]\n"
            "client http --port P --path P [--clients N] [--token T] [--seconds S] [--warm S]\n"
            "--plain: a server that sends events without being asked. --seconds: from the first event on, then it gives up.\n"
            "--window: writes one `w` to FD when all connections have so many events more.\n"
            "--mark: latencies up to this sequence are told apart from later ones.\n");
    exit(BAD_USAGE);
}

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"port", 1, 0, 'p'},        {"clients", 1, 0, 'n'},     {"run", 1, 0, 'r'},           {"token", 1, 0, 't'},
        {"path", 1, 0, 'P'},        {"plain", 0, 0, 'x'},       {"after", 1, 0, 'a'},         {"last", 1, 0, 'l'},
        {"seconds", 1, 0, 's'},     {"window", 1, 0, 'w'},      {"credit", 1, 0, 'c'},        {"mark", 1, 0, 'm'},
        {"stalling", 1, 0, 'k'},    {"stall-after", 1, 0, 'A'}, {"stall-seconds", 1, 0, 'S'}, {"warm", 1, 0, 'W'},
        {0, 0, 0, 0},
    };
    if (argc < 2) usage();
    if (!strcmp(argv[1], "http")) ask.http = 1;
    else if (strcmp(argv[1], "follow")) usage();
    for (int c; (c = getopt_long(argc - 1, argv + 1, "", names, 0)) != -1;) switch (c) {
            case 'p': ask.port = atoi(optarg); break;
            case 'n': ask.clients = atoi(optarg); break;
            case 'r': ask.run = optarg; break;
            case 't': ask.token = optarg; break;
            case 'P': ask.path = optarg; break;
            case 'x': ask.plain = 1; break;
            case 'a': ask.after = strtoull(optarg, 0, 10); break;
            case 'l': ask.last = strtoull(optarg, 0, 10); break;
            case 's': ask.seconds = atof(optarg); break;
            case 'w': ask.window = atoi(optarg); break;
            case 'c': ask.credit = atoi(optarg); break;
            case 'k': ask.stalling = atoi(optarg); break;
            case 'A': ask.stall_after = strtoull(optarg, 0, 10); break;
            case 'S': ask.stall_seconds = atof(optarg); break;
            case 'W': ask.warm = atof(optarg); break;
            case 'm':
                if (ask.marked == MARKS) usage();
                ask.marks[ask.marked++] = strtoull(optarg, 0, 10);
                break;
            default: usage();
        }
    if (ask.port <= 0 || ask.clients <= 0 || (!ask.http && ask.last <= ask.after)) usage();
}

static void give_up(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    exit(BAD_SERVER);
}

/* --- connections ------------------------------------------------------------------------------------------------- */

typedef enum { SHAKING, GREETED, FOLLOWING, LIVE, CLOSED } State;
typedef enum { READS, STALLS, READS_AGAIN } Manner;
typedef struct {
    int fd;
    State state;
    Manner manner;
    int stalls, answered, done;
    uint64_t next, window_end, behind, level_at, sent_at;
    unsigned char *rest; /* the beginning of a frame or a head that has not come whole */
    size_t rest_size, rest_room;
} Connection;

enum { READ = 1 << 18, BATCH = 512, SMALL_BUFFER = 1 << 16, LEVEL = 200 /* events */ };
static Connection *all;
static int epoll;
static unsigned char *room; /* what is read goes here, behind what was left of the same connection */
static size_t room_size;

static int dial(int small) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)ask.port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, size = SMALL_BUFFER;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (small) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size); /* so that it is full soon, and surely */
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) give_up("connect: %s", strerror(errno));
    return fd;
}

static void write_whole(int fd, const void *data, size_t size) {
    /* Requests of a few hundred bytes into an empty socket buffer: less than all of it is an error. */
    ssize_t n = write(fd, data, size);
    if (n != (ssize_t)size) give_up("write: %s", n < 0 ? strerror(errno) : "the socket takes no more");
}

static void keep_rest(Connection *c, const unsigned char *data, size_t size) {
    if (size > c->rest_room) {
        c->rest_room = size * 2;
        free(c->rest);
        c->rest = malloc(c->rest_room);
    }
    if (size) memcpy(c->rest, data, size);
    c->rest_size = size;
}

/* Reads once. Returns the bytes there are now at `room`, or -1 (nothing came), or -2 (the peer has gone). */
static ssize_t take(Connection *c) {
    if (room_size < c->rest_size + READ) room = realloc(room, room_size = c->rest_size + READ);
    if (c->rest_size) memcpy(room, c->rest, c->rest_size);
    ssize_t n = read(c->fd, room + c->rest_size, READ);
    if (n > 0) return (ssize_t)c->rest_size + n;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? -1 : -2;
}

static void watch(int index, int operation) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)index};
    epoll_ctl(epoll, operation, all[index].fd, &event);
}

static void hang_up(Connection *c) {
    epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, 0);
    close(c->fd);
    c->fd = -1;
    c->state = CLOSED;
}

/* The connections stay open until somebody closes our input: the server's report comes before it sees them end. */
static void stay(void) {
    char byte;
    fflush(stdout);
    while (read(0, &byte, 1) > 0) continue;
}

/* --- following --------------------------------------------------------------------------------------------------- */

static struct {
    uint64_t delivered, bytes, frames, duplicates, gaps, closed, reads, front;
    uint64_t begun_at, subscribed_at, ready_at, first_at, last_at, stalled_at, woken_at;
    int greeted, live, finished, ready, stalls_over, window_done;
    char problem[256];
    Histogram latency[MARKS + 1];
    uint64_t *due; /* by sequence: the instant from its payload; the bytes are the same for all, so it is read once */
    uint32_t *size;
    uint64_t sizes_differ;
} met;

static void note(const char *text, const unsigned char *data, size_t size) {
    if (met.problem[0]) return;
    snprintf(met.problem, sizeof met.problem, "%s %.*s", text, (int)(size < 180 ? size : 180), (const char *)data);
    for (char *p = met.problem; *p; p++)
        if (*p == '"' || *p == '\\' || (unsigned char)*p < ' ') *p = '\'';
}

/* A masked frame (the mask is zero, which RFC 6455 allows and which costs the server the same). */
static void send_frame(Connection *c, int opcode, const char *text, size_t size) {
    unsigned char frame[1024] = {(unsigned char)(0x80 | opcode)};
    size_t head = 2;
    if (size > sizeof frame - 8) give_up("a frame of %zu bytes is not foreseen", size);
    if (size < 126) frame[1] = (unsigned char)(0x80 | size);
    else frame[1] = 0x80 | 126, frame[2] = (unsigned char)(size >> 8), frame[3] = (unsigned char)size, head = 4;
    if (size) memcpy(frame + head + 4, text, size);
    write_whole(c->fd, frame, head + 4 + size);
}

static void subscribe_all(void) {
    char text[512];
    int size = snprintf(text, sizeof text, "{\"type\":\"subscribe\",\"run\":\"%s\",\"after\":%llu}", ask.run,
                        (unsigned long long)ask.after);
    met.subscribed_at = now_ns();
    for (int i = 0; i < ask.clients; i++)
        if (all[i].state == GREETED) {
            all[i].state = FOLLOWING;
            send_frame(&all[i], 1, text, (size_t)size);
        }
}

static void became_live(Connection *c) {
    if (c->state == LIVE) return;
    c->state = LIVE;
    met.live++;
}

static int begins(const unsigned char *text, size_t size, const char *with) {
    size_t n = strlen(with);
    return size >= n && !memcmp(text, with, n);
}

static void take_gateway_frame(Connection *c, const unsigned char *text, size_t size) {
    met.frames++;
    if (begins(text, size, "{\"type\":\"gw.welcome\"")) {
        if (c->state == SHAKING) c->state = GREETED, met.greeted++;
    } else if (begins(text, size, "{\"type\":\"gw.live\"")) {
        became_live(c);
    } else if (!begins(text, size, "{\"type\":\"gw.subscribed\"") && !begins(text, size, "{\"type\":\"gw.tick\"") &&
               !begins(text, size, "{\"type\":\"gw.unsubscribed\"")) {
        note("the gateway says", text, size);
    }
}

static uint64_t number_after(const unsigned char *text, size_t size, const char *what) {
    const unsigned char *found = memmem(text, size, what, strlen(what));
    return found ? strtoull((const char *)found + strlen(what), 0, 10) : 0;
}

static void take_event(Connection *c, const unsigned char *text, size_t size, uint64_t at) {
    uint64_t sequence = number_after(text, size < 128 ? size : 128, "\"sequence\":");
    if (!sequence || sequence > ask.last) {
        note("unexpected event", text, size);
        return;
    }
    if (sequence < c->next) {
        met.duplicates++;
        return;
    }
    met.gaps += sequence - c->next;
    c->next = sequence + 1;
    met.delivered++;
    met.last_at = at;
    uint64_t *due = &met.due[sequence - ask.after - 1];
    uint32_t *known = &met.size[sequence - ask.after - 1];
    if (!*known) {
        *known = (uint32_t)size;
        *due = number_after(text, size, "\"at ");
        if (*due && (!met.first_at || *due < met.first_at)) met.first_at = *due;
    } else if (*known != size) {
        met.sizes_differ++;
    }
    if (!c->stalls && *due) {
        int part = 0;
        while (part < ask.marked && sequence > ask.marks[part]) part++;
        record(&met.latency[part], at > *due ? at - *due : 0);
    }
    if (c->next > met.front) met.front = c->next;
    if (c->manner == READS_AGAIN && !c->level_at && met.front - c->next <= LEVEL) c->level_at = at;
    if (sequence == ask.last) c->done = 1, met.finished++;
}

/* One frame at `data`; returns its size, or 0 if it has not come whole. */
static size_t take_frame(Connection *c, const unsigned char *data, size_t there, uint64_t at) {
    if (there < 2) return 0;
    size_t head = 2, size = data[1] & 127;
    if (size == 126) {
        if (there < 4) return 0;
        size = (size_t)data[2] << 8 | data[3], head = 4;
    } else if (size == 127) {
        if (there < 10) return 0;
        size = 0, head = 10;
        for (int i = 2; i < 10; i++) size = size << 8 | data[i];
    }
    if (there < head + size) return 0;
    const unsigned char *payload = data + head;
    switch (data[0]) {
        case 0x81:
            if (begins(payload, size, "{\"type\":\"gw.")) take_gateway_frame(c, payload, size);
            else take_event(c, payload, size, at);
            break;
        case 0x88: note("closed:", payload + 2, size > 2 ? size - 2 : 0); break;
        case 0x89: send_frame(c, 10, (const char *)payload, size); break;
        case 0x8A: break;
        default: note("unexpected frame", data, 1);
    }
    return head + size;
}

/* The end of the handshake's answer, or 0 if it has not come whole. */
static size_t take_answer(Connection *c, const unsigned char *data, size_t there) {
    const unsigned char *end = memmem(data, there, "\r\n\r\n", 4);
    if (!end) return 0;
    if (!begins(data, there, "HTTP/1.1 101")) give_up("no upgrade: %.*s", (int)(there < 200 ? there : 200), data);
    if (ask.plain) became_live(c);
    return (size_t)(end + 4 - data);
}

static void one_window_more(Connection *c) {
    if (!ask.window || c->next <= c->window_end) return;
    c->window_end += (uint64_t)ask.window;
    if (++met.window_done == ask.clients) {
        met.window_done = 0;
        if (write(ask.credit, "w", 1) != 1) note("credit", (const unsigned char *)strerror(errno), 20);
    }
}

static void hear(Connection *c) {
    ssize_t there = take(c);
    uint64_t at = now_ns();
    if (there == -1) return;
    if (there == -2) {
        met.closed += !c->done;
        if (!c->done) met.finished++;
        hang_up(c);
        return;
    }
    met.reads++;
    met.bytes += (uint64_t)there - c->rest_size;
    size_t used = 0, n = 0;
    if (!c->answered) {
        used = take_answer(c, room, (size_t)there);
        c->answered = used > 0;
    }
    if (c->answered)
        while ((n = take_frame(c, room + used, (size_t)there - used, at))) used += n;
    keep_rest(c, room + used, (size_t)there - used);
    one_window_more(c);
}

/* Those that are to stall stop when they have `stall_after`, and go on together. */
static void stall_or_wake(uint64_t at) {
    if (!ask.stalling || met.stalls_over) return;
    for (int i = 0; i < ask.stalling; i++) {
        Connection *c = &all[i];
        if (c->manner != READS || c->next <= ask.stall_after || c->fd < 0) continue;
        c->manner = STALLS;
        watch(i, EPOLL_CTL_DEL);
        if (!met.stalled_at) met.stalled_at = at;
    }
    if (!met.stalled_at || (double)(at - met.stalled_at) / 1e9 < ask.stall_seconds) return;
    met.stalls_over = 1;
    met.woken_at = at;
    for (int i = 0; i < ask.stalling; i++) {
        if (all[i].manner != STALLS) continue;
        all[i].manner = READS_AGAIN;
        all[i].behind = met.front - all[i].next;
        watch(i, EPOLL_CTL_ADD);
    }
}

static void report_follow(uint64_t ended) {
    uint64_t level_at = met.woken_at, behind = UINT64_MAX;
    int stalled = 0, unfinished = 0;
    for (int i = 0; i < ask.clients; i++) {
        if (all[i].manner == READS_AGAIN) {
            stalled++;
            if (all[i].behind < behind) behind = all[i].behind;
            if (all[i].level_at > level_at) level_at = all[i].level_at;
        }
        unfinished += !all[i].done;
    }
    uint64_t first = met.first_at ? met.first_at : met.subscribed_at;
    printf("{\"clients\":%d,\"expected\":%llu,\"delivered\":%llu,\"duplicates\":%llu,\"gaps\":%llu,\"closed\":%llu,", ask.clients,
           (unsigned long long)((ask.last - ask.after) * (uint64_t)ask.clients), (unsigned long long)met.delivered,
           (unsigned long long)met.duplicates, (unsigned long long)met.gaps, (unsigned long long)met.closed);
    printf("\"unfinished\":%d,\"sizes_differ\":%llu,\"bytes\":%llu,\"reads\":%llu,\"gateway_frames\":%llu,", unfinished,
           (unsigned long long)met.sizes_differ, (unsigned long long)met.bytes, (unsigned long long)met.reads,
           (unsigned long long)met.frames);
    printf("\"seconds\":%.6f,\"seconds_subscribed\":%.6f,\"stalled\":%d,\"behind\":%llu,\"level_s\":%.6f,",
           met.last_at > first ? (double)(met.last_at - first) / 1e9 : 0.0,
           met.last_at > met.subscribed_at ? (double)(met.last_at - met.subscribed_at) / 1e9 : 0.0, stalled,
           (unsigned long long)(stalled ? behind : 0),
           (double)(level_at - met.woken_at) / 1e9);
    printf("\"joined_s\":%.6f,", met.ready ? (double)(met.ready_at - met.begun_at) / 1e9 : 0.0);
    printf("\"cpu_s\":%.4f,\"wall_s\":%.4f,\"problem\":\"%s\",\"latency\":[", cpu_seconds(),
           (double)(ended - met.subscribed_at) / 1e9, met.problem);
    for (int i = 0; i <= ask.marked; i++) {
        if (i) putchar(',');
        print_histogram(&met.latency[i]);
    }
    puts("]}");
}

static void open_all(void) {
    char request[1024], who[300] = "";
    if (ask.token[0]) snprintf(who, sizeof who, "Authorization: Bearer %s\r\n", ask.token);
    int size = snprintf(request, sizeof request,
                        "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                        "%s%s\r\n",
                        ask.path, ask.port, ask.plain ? "" : "Sec-WebSocket-Protocol: greenroom.v1\r\n", who);
    for (int i = 0; i < ask.clients; i++) {
        Connection *c = &all[i];
        c->stalls = i < ask.stalling;
        c->next = ask.after + 1;
        c->window_end = ask.after + (uint64_t)ask.window;
        c->fd = dial(c->stalls);
        write_whole(c->fd, request, (size_t)size);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        watch(i, EPOLL_CTL_ADD);
    }
}

static int follow(void) {
    struct epoll_event events[BATCH];
    met.due = calloc(ask.last - ask.after, sizeof *met.due);
    met.size = calloc(ask.last - ask.after, sizeof *met.size);
    met.begun_at = met.subscribed_at = now_ns();
    open_all();
    uint64_t limit = now_ns() + 60000000000u, at = 0; /* until the first event; then what was asked for */
    int limited = 0;
    while (met.finished < ask.clients && (met.ready || !met.problem[0]) && (at = now_ns()) < limit) {
        int n = epoll_wait(epoll, events, BATCH, ask.stalling ? 10 : 100);
        for (int i = 0; i < n; i++) hear(&all[events[i].data.u32]);
        if (!ask.plain && met.greeted == ask.clients) {
            met.greeted = 0;
            subscribe_all();
        }
        if (met.live == ask.clients && !met.ready) {
            met.ready = 1;
            met.ready_at = now_ns();
            puts("ready");
            fflush(stdout);
        }
        if (met.delivered && !limited) {
            limited = 1;
            limit = now_ns() + (uint64_t)(ask.seconds * 1e9);
        }
        stall_or_wake(at);
    }
    report_follow(now_ns());
    stay();
    return OK;
}

/* --- plain HTTP -------------------------------------------------------------------------------------------------- */

/* The size of the whole response at `data`, or 0 if it has not come whole. */
static size_t response_size(const unsigned char *data, size_t there) {
    const unsigned char *end = memmem(data, there, "\r\n\r\n", 4);
    if (!end) return 0;
    if (!begins(data, there, "HTTP/1.1 200")) give_up("not 200: %.*s", (int)(there < 300 ? there : 300), data);
    size_t head = (size_t)(end + 4 - data), body = 0;
    int known = 0;
    for (const unsigned char *line = data; line < end; line = (unsigned char *)memmem(line, (size_t)(end + 2 - line), "\r\n", 2) + 2)
        if (end - line > 15 && !strncasecmp((const char *)line, "content-length:", 15))
            body = strtoull((const char *)line + 15, 0, 10), known = 1;
    if (!known) give_up("a response without content-length: %.*s", (int)(head < 300 ? head : 300), data);
    return there < head + body ? 0 : head + body;
}

static int http(void) {
    static Histogram latency;
    struct epoll_event events[BATCH];
    char request[1024], who[300] = "";
    if (ask.token[0]) snprintf(who, sizeof who, "Authorization: Bearer %s\r\n", ask.token);
    int size = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n", ask.path, ask.port, who);
    for (int i = 0; i < ask.clients; i++) {
        all[i].fd = dial(0);
        fcntl(all[i].fd, F_SETFL, O_NONBLOCK);
        watch(i, EPOLL_CTL_ADD);
        all[i].sent_at = now_ns();
        write_whole(all[i].fd, request, (size_t)size);
    }
    uint64_t begin = now_ns() + (uint64_t)(ask.warm * 1e9), end = begin + (uint64_t)(ask.seconds * 1e9), at;
    int measuring = 0;
    while ((at = now_ns()) < end) {
        if (!measuring && at >= begin) {
            measuring = 1;
            puts("ready"); /* from here on the server's CPU counts */
            fflush(stdout);
        }
        int n = epoll_wait(epoll, events, BATCH, 100);
        for (int i = 0; i < n; i++) {
            Connection *c = &all[events[i].data.u32];
            ssize_t there = take(c);
            if (there == -1) continue;
            if (there == -2) give_up("the server has closed a connection");
            size_t whole = response_size(room, (size_t)there);
            keep_rest(c, room + whole, (size_t)there - whole);
            if (!whole) continue;
            at = now_ns();
            if (measuring) record(&latency, at - c->sent_at);
            c->sent_at = at;
            write_whole(c->fd, request, (size_t)size);
        }
    }
    printf("{\"requests\":%llu,\"seconds\":%.6f,\"cpu_s\":%.4f,\"latency\":[", (unsigned long long)latency.total, ask.seconds,
           cpu_seconds());
    print_histogram(&latency);
    puts("]}");
    stay();
    return OK;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    all = calloc((size_t)ask.clients, sizeof *all);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    return ask.http ? http() : follow();
}
