//! The entry points of libgomp that run a region, so that every library that stands in front of them has the same list.
//!
//! Source: GCC's libgomp/libgomp_g.h.

/// Hands the entry points to the macro `$each`: the name, and the arguments after function and data, by name and type.
/// `GOMP_parallel_reductions` is missing, since it returns a value.
#[macro_export]
macro_rules! for_each_region {
    ($each:ident) => {
        $each! {
            GOMP_parallel(threads: c_uint, flags: c_uint);
            GOMP_parallel_sections(threads: c_uint, count: c_uint, flags: c_uint);
            GOMP_parallel_loop_static(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
            GOMP_parallel_loop_dynamic(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
            GOMP_parallel_loop_guided(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
            GOMP_parallel_loop_nonmonotonic_dynamic(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
            GOMP_parallel_loop_nonmonotonic_guided(threads: c_uint, start: c_long, end: c_long, step: c_long, chunk: c_long, flags: c_uint);
            GOMP_parallel_loop_runtime(threads: c_uint, start: c_long, end: c_long, step: c_long, flags: c_uint);
            GOMP_parallel_loop_nonmonotonic_runtime(threads: c_uint, start: c_long, end: c_long, step: c_long, flags: c_uint);
            GOMP_parallel_loop_maybe_nonmonotonic_runtime(threads: c_uint, start: c_long, end: c_long, step: c_long, flags: c_uint);
        }
    };
}
