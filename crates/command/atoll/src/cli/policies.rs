//! A list of replacement policies on the command line: commas part policies and, as in `lru:linux,scan=64`, options of one.

use std::str::FromStr;

/// Policies in the order in which they were written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Policies<T>(Vec<T>);

impl<T: Copy> Policies<T> {
    /// Returns the policies of all lists, one after the other.
    pub(crate) fn all(lists: &[Self]) -> Vec<T> {
        lists.iter().flat_map(|list| list.0.iter().copied()).collect()
    }
}

impl<T: FromStr> FromStr for Policies<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        let mut names: Vec<String> = Vec::new();
        for piece in text.split(',') {
            match names.last_mut() {
                // An option follows a policy that has options already, and names no policy of its own.
                Some(last) if last.contains(':') && piece.contains('=') && !piece.contains(':') => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ => names.push(piece.to_owned()),
            }
        }
        names.iter().map(|name| name.parse()).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_pages::PolicySpec;

    /// `atoll sim --policy lru:linux,scan=64` said that there is no policy of the name `scan=64`.
    #[test]
    fn a_policy_with_two_options_was_read_as_two_policies() {
        let text = "fifo,lru:linux,scan=64,cmcp:p=0.25,lru";
        let list: Policies<PolicySpec> = text.parse().unwrap();
        let names: Vec<String> = Policies::all(&[list]).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["fifo", "lru:linux,scan=64", "cmcp:p=0.25", "lru"]);
        assert!("fifo,scan=64".parse::<Policies<PolicySpec>>().is_err());
    }
}
