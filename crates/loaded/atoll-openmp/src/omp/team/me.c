/* The calling thread's descriptor: the word that `thread.rs` reads and writes without a call. */
__attribute__((tls_model("initial-exec"))) __thread void *atoll_me;
