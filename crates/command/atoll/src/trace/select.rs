//! `--regions`: selects the regions that are recorded.
//!
//! `output` asks at each region's begin.

use std::fmt;
use std::str::FromStr;

/// Regions by number, name or address; a region that any item names is selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Regions(Vec<Item>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    /// The numbers of regions in the order in which the program begins them, from 1.
    Numbers(u64, u64),
    /// The symbol of the outlined function, or the part before `._omp_fn`.
    Name(String),
    /// The address of the outlined function.
    Address(u64),
}

/// The reason why a text selects no regions.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub(crate) enum RegionsError {
    #[error(
        "regions are numbers from 1 (3, 5-9), functions' names, or addresses (0x401000), with commas between"
    )]
    Empty,
    #[error("`{0}` is not a range of regions: write 5-9, with numbers from 1")]
    Range(String),
}

/// Returns the part of an outlined function's name that the program's author wrote.
fn stem(name: &str) -> &str {
    name.split("._omp_fn").next().unwrap_or(name)
}

impl Regions {
    /// Whether this region is selected. `number` counts regions from 1.
    pub(crate) fn have(&self, number: u64, address: u64, name: Option<&str>) -> bool {
        self.0.iter().any(|item| match item {
            Item::Numbers(first, last) => (*first..=*last).contains(&number),
            Item::Name(wanted) => name.is_some_and(|name| name == wanted || stem(name) == wanted),
            Item::Address(wanted) => *wanted == address,
        })
    }
}

impl FromStr for Regions {
    type Err = RegionsError;

    fn from_str(text: &str) -> Result<Self, RegionsError> {
        text.split(',').map(item).collect::<Result<_, _>>().map(Self)
    }
}

fn item(text: &str) -> Result<Item, RegionsError> {
    if let Some(Ok(address)) = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)) {
        return Ok(Item::Address(address));
    }
    match text.as_bytes().first() {
        None => Err(RegionsError::Empty),
        Some(b'0'..=b'9') => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if 1 <= first && first <= last => Ok(Item::Numbers(first, last)),
                _ => Err(RegionsError::Range(text.to_owned())),
            }
        }
        Some(_) => Ok(Item::Name(text.to_owned())),
    }
}

impl fmt::Display for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            match item {
                Item::Numbers(first, last) if first == last => write!(f, "{first}")?,
                Item::Numbers(first, last) => write!(f, "{first}-{last}")?,
                Item::Name(name) => f.write_str(name)?,
                Item::Address(address) => write!(f, "{address:#x}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_numbers_names_and_addresses() {
        let regions: Regions = "2,5-7,conj_grad,0x401000".parse().unwrap();
        assert_eq!(regions.to_string(), "2,5-7,conj_grad,0x401000");
        let have = |number, address, name| regions.have(number, address, name);
        assert!(have(2, 0, None) && have(6, 0, None) && !have(3, 0, None) && !have(8, 0, None));
        assert!(have(9, 0x40_1000, None));
        assert!(have(9, 0, Some("conj_grad._omp_fn.0")) && have(9, 0, Some("conj_grad")));
        assert!(!have(9, 0, Some("conj_gradient")));
        for wrong in ["", "1,,2", "0", "5-3", "7x", "3-"] {
            assert!(wrong.parse::<Regions>().is_err(), "{wrong}");
        }
    }
}
