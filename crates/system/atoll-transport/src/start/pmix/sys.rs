//! The few types and numbers of PMIx's headers that start-up needs.
//!
//! `library.rs` calls PMIx with them. They are the same in PMIx 4 and 5; where a compiler and the headers are installed, a test
//! compares every size, offset and number here with theirs.
//!
//! Source: the PMIx standard 4.1, chapter 3, and `pmix_common.h` of OpenPMIx 4.2.2.

use std::ffi::{CStr, c_char, c_int, c_void};

/// `pmix_status_t`: 0, or a number that `PMIx_Error_string` explains.
pub(super) type Status = c_int;

pub(super) const SUCCESS: Status = 0;
/// The status of a call that is done already and will not call back.
pub(super) const OPERATION_SUCCEEDED: Status = -157;

/// The rank that stands for all processes of a namespace.
pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;
/// The `pmix_scope_t` for all processes, on this host and others.
pub(super) const GLOBAL: u8 = 3;

pub(super) const COLLECT_DATA: &CStr = c"pmix.collect";
pub(super) const JOB_SIZE: &CStr = c"pmix.job.size";
pub(super) const TIMEOUT: &CStr = c"pmix.timeout";

/// `pmix_data_type_t`.
pub(super) const BOOL: u16 = 1;
pub(super) const INT: u16 = 6;
pub(super) const UINT32: u16 = 14;
pub(super) const BYTE_OBJECT: u16 = 27;

/// The bytes of a namespace's name, with the zero byte.
const NAMESPACE: usize = 256;
const KEY: usize = 512;

/// `pmix_proc_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Proc {
    pub(super) namespace: [c_char; NAMESPACE],
    pub(super) rank: u32,
}

/// `pmix_byte_object_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct ByteObject {
    pub(super) bytes: *mut c_char,
    pub(super) size: usize,
}

/// The union of `pmix_value_t`: the parts that are used, and the longest.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Data {
    pub(super) flag: bool,
    pub(super) integer: c_int,
    pub(super) uint32: u32,
    pub(super) object: ByteObject,
    longest: [*mut c_void; 3],
}

/// `pmix_value_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Value {
    pub(super) kind: u16,
    pub(super) data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
pub(super) struct Info {
    key: [c_char; KEY],
    flags: u32,
    value: Value,
}

/// `pmix_op_cbfunc_t`.
pub(super) type Done = unsafe extern "C" fn(Status, *mut c_void);

impl Proc {
    pub(super) fn empty() -> Proc {
        Proc { namespace: [0; NAMESPACE], rank: 0 }
    }

    /// The name of its namespace.
    pub(super) fn name(&self) -> Vec<u8> {
        self.namespace.iter().take_while(|&&byte| byte != 0).map(|&byte| byte.to_ne_bytes()[0]).collect()
    }
}

impl Value {
    fn zeroed(kind: u16) -> Value {
        Value { kind, data: Data { longest: [std::ptr::null_mut(); 3] } }
    }

    pub(super) fn flag(flag: bool) -> Value {
        let mut value = Value::zeroed(BOOL);
        value.data.flag = flag;
        value
    }

    pub(super) fn int(integer: c_int) -> Value {
        let mut value = Value::zeroed(INT);
        value.data.integer = integer;
        value
    }

    /// A value that points to `bytes`, which PMIx does not write.
    pub(super) fn bytes(bytes: &[u8]) -> Value {
        let mut value = Value::zeroed(BYTE_OBJECT);
        value.data.object = ByteObject { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        value
    }
}

impl Info {
    /// An info with `key`, one of the keys above.
    pub(super) fn new(key: &CStr, value: Value) -> Info {
        let mut info = Info { key: [0; KEY], flags: 0, value };
        for (to, from) in info.key.iter_mut().zip(key.to_bytes()) {
            // The type is signed or not, depending on the instruction set.
            *to = c_char::from_ne_bytes([*from]);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    use super::*;

    #[test]
    fn layouts_and_numbers_are_those_of_the_header() {
        let flags = Command::new("pkg-config").args(["--cflags", "pmix"]).output();
        let Some(flags) = flags.ok().filter(|flags| flags.status.success()) else {
            atoll_skips::skip!("pkg-config finds no pmix: apt-get install pkg-config libpmix-dev");
        };
        let text = |key: &CStr| key.to_str().unwrap().to_owned();
        let expected = [
            ("sizeof(pmix_proc_t)", size_of::<Proc>() as i64),
            ("offsetof(pmix_proc_t, rank)", offset_of!(Proc, rank) as i64),
            ("sizeof(pmix_byte_object_t)", size_of::<ByteObject>() as i64),
            ("offsetof(pmix_byte_object_t, size)", offset_of!(ByteObject, size) as i64),
            ("sizeof(pmix_value_t)", size_of::<Value>() as i64),
            ("offsetof(pmix_value_t, data)", offset_of!(Value, data) as i64),
            ("sizeof(pmix_data_type_t)", 2),
            ("sizeof(pmix_info_t)", size_of::<Info>() as i64),
            ("offsetof(pmix_info_t, flags)", offset_of!(Info, flags) as i64),
            ("offsetof(pmix_info_t, value)", offset_of!(Info, value) as i64),
            ("sizeof(pmix_info_directives_t)", 4),
            ("sizeof(pmix_scope_t)", 1),
            ("sizeof(pmix_status_t)", size_of::<Status>() as i64),
            ("sizeof(pmix_rank_t)", 4),
            ("PMIX_SUCCESS", SUCCESS.into()),
            ("PMIX_OPERATION_SUCCEEDED", OPERATION_SUCCEEDED.into()),
            ("(pmix_rank_t)(PMIX_RANK_WILDCARD)", RANK_WILDCARD.into()),
            ("PMIX_GLOBAL", GLOBAL.into()),
            ("PMIX_BOOL", BOOL.into()),
            ("PMIX_INT", INT.into()),
            ("PMIX_UINT32", UINT32.into()),
            ("PMIX_BYTE_OBJECT", BYTE_OBJECT.into()),
            ("strcmp(PMIX_COLLECT_DATA, $)", 0),
            ("strcmp(PMIX_JOB_SIZE, $)", 0),
            ("strcmp(PMIX_TIMEOUT, $)", 0),
        ];
        let mut keys = [COLLECT_DATA, JOB_SIZE, TIMEOUT].map(text).into_iter();
        let mut source = String::from("#include <pmix.h>\n#include <stddef.h>\n#include <string.h>\n");
        source += "#include <stdio.h>\nint main(void) {\n";
        for (expression, _) in expected {
            let key = if expression.contains('$') {
                format!("\"{}\"", keys.next().unwrap())
            } else {
                String::new()
            };
            source += &format!("printf(\"%lld\\n\", (long long)({}));\n", expression.replace('$', &key));
        }
        let folder = std::env::temp_dir().join(format!("atoll-pmix-layout-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (file, program) = (folder.join("layout.c"), folder.join("layout"));
        std::fs::write(&file, source + "}\n").unwrap();
        let flags = String::from_utf8(flags.stdout).unwrap();
        let compiled =
            Command::new("cc").args(flags.split_whitespace()).arg(&file).arg("-o").arg(&program).output();
        let printed = match compiled {
            Ok(output) if output.status.success() => Ok(Command::new(&program).output().unwrap().stdout),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(e) => Err(e.to_string()),
        };
        std::fs::remove_dir_all(&folder).unwrap();
        match printed {
            Ok(printed) => {
                let printed = String::from_utf8(printed).unwrap();
                let numbers = printed.lines().map(|line| line.parse::<i64>().unwrap());
                let found: Vec<_> = expected.iter().map(|(expression, _)| *expression).zip(numbers).collect();
                assert_eq!(found, expected);
            }
            Err(why) => atoll_skips::skip!("no C program can be compiled with pmix.h: {why}"),
        }
    }

    #[test]
    fn a_key_and_a_name_end_with_zero() {
        let info = Info::new(COLLECT_DATA, Value::flag(true));
        assert_eq!((info.key[11], info.key[12]), (c_char::from_ne_bytes([b't']), 0));
        let mut proc = Proc::empty();
        proc.namespace[0] = c_char::from_ne_bytes([b'a']);
        assert_eq!(proc.name(), b"a");
        proc.namespace = [c_char::from_ne_bytes([b'b']); NAMESPACE];
        assert_eq!(proc.name().len(), NAMESPACE);
    }
}
