//! How an address becomes a channel, a bank, a row and a column.
//!
//! A mapping is written as the order of its fields, most significant first, two letters each:
//! `ro` row, `ra` rank, `bg` bank group, `ba` bank, `ch` channel, `pc` pseudo-channel, `co` column.
//! The burst lies below the last field. A field that has one value only may be left out, and the
//! row takes what is left, so it comes first. A number after `co` takes that many of its low bits,
//! and `co` may then come a second time for the rest:
//!
//! ```text
//!   rorabgbachco            row | rank | group | bank | channel | column | burst
//!   rocobabgrapcco2+xorco   row | column high | bank | group | rank | pc | column, 2 bits | burst
//! ```
//!
//! `+xorco` and `+xorro` hash pseudo-channel, rank, group and bank with the bits of the column or
//! of the row, so that strides that are powers of two do not fall on one bank.

use super::error::PartError;
use super::part::Part;
use std::fmt;

/// A field of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Row,
    Rank,
    Group,
    Bank,
    Channel,
    PseudoChannel,
    /// All bits of the column, or those that a lower [`Field::LowColumn`] left.
    Column,
    /// So many low bits of the column.
    LowColumn(u32),
}

/// What bank numbers are hashed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    None,
    Column,
    Row,
}

/// An order of address fields; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    text: String,
    /// Least significant first.
    fields: Vec<Field>,
    hash: Hash,
}

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The channel.
    pub channel: u32,
    /// The bank in the channel: pseudo-channel, rank, group and bank in one number, the bank lowest.
    pub bank: u32,
    /// The row in the bank.
    pub row: u32,
    /// The burst in the row.
    pub column: u32,
}

impl Mapping {
    /// Reads an order of fields.
    ///
    /// # Errors
    /// Says which field is unknown, missing or doubled.
    pub fn parse(text: &str) -> Result<Mapping, PartError> {
        let wrong = |why: String| PartError::Mapping { mapping: text.to_owned(), why };
        let (order, hash) = match text.split_once('+') {
            None => (text, Hash::None),
            Some((order, "xorco")) => (order, Hash::Column),
            Some((order, "xorro")) => (order, Hash::Row),
            Some((_, other)) => return Err(wrong(format!("`+{other}` is neither `+xorco` nor `+xorro`"))),
        };
        let mut fields = Vec::new();
        let mut rest = order;
        while !rest.is_empty() {
            let name = rest.get(..2).ok_or_else(|| wrong(format!("`{rest}` is no field")))?;
            rest = rest.get(2..).unwrap_or("");
            let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
            let (number, after) = rest.split_at(digits);
            rest = after;
            let field = match (name, number) {
                ("ro", "") => Field::Row,
                ("ra", "") => Field::Rank,
                ("bg", "") => Field::Group,
                ("ba", "") => Field::Bank,
                ("ch", "") => Field::Channel,
                ("pc", "") => Field::PseudoChannel,
                ("co", "") => Field::Column,
                ("co", number) => match number.parse() {
                    Ok(bits) if (1..=16).contains(&bits) => Field::LowColumn(bits),
                    _ => return Err(wrong(format!("`co{number}`: between 1 and 16 bits"))),
                },
                _ => return Err(wrong(format!("`{name}{number}` is no field (ro ra bg ba ch pc co)"))),
            };
            if fields.contains(&field) || (matches!(field, Field::LowColumn(_)) && fields.iter().any(is_low)) {
                return Err(wrong(format!("`{name}` comes twice")));
            }
            fields.push(field);
        }
        if fields.first() != Some(&Field::Row) {
            return Err(wrong("the row `ro` comes first".to_owned()));
        }
        if !fields.contains(&Field::Column) {
            return Err(wrong("the column `co` is missing".to_owned()));
        }
        fields.reverse();
        let low = fields.iter().position(is_low);
        if low.is_some_and(|low| fields.iter().position(|field| *field == Field::Column) < Some(low)) {
            return Err(wrong("the low bits of the column come below the others".to_owned()));
        }
        Ok(Mapping { text: text.to_owned(), fields, hash })
    }

    fn has(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }

    fn low_bits(&self) -> u32 {
        self.fields
            .iter()
            .find_map(|field| if let Field::LowColumn(bits) = field { Some(*bits) } else { None })
            .unwrap_or(0)
    }
}

fn is_low(field: &Field) -> bool {
    matches!(field, Field::LowColumn(_))
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A mapping made ready for one part.
#[derive(Clone, Debug)]
pub struct Placer {
    burst_shift: u32,
    channel: Slice,
    pseudo_channel: Slice,
    rank: Slice,
    group: Slice,
    bank: Slice,
    low_column: Slice,
    column: Slice,
    row_shift: u32,
    low_bits: u32,
    hash: Hash,
    hashes: [HashStep; 4],
    groups: u32,
    ranks: u32,
    banks: u32,
    /// With a count that is no power of two: the fields in order, by division.
    divided: Option<Vec<(Field, u64)>>,
}

/// Bits `[shift, shift + n)` with `mask` of n ones.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    shift: u32,
    mask: u32,
}

impl Slice {
    #[inline]
    fn of(self, line: u64) -> u32 {
        (line >> self.shift) as u32 & self.mask
    }
}

/// Which bits of the hash source a field takes.
#[derive(Clone, Copy, Debug, Default)]
struct HashStep {
    shift: u32,
    mask: u32,
}

impl Placer {
    /// The mapping of `part`, ready to use.
    ///
    /// # Errors
    /// A field of several values that the mapping does not name; a hash over counts that are no powers of two.
    pub fn new(part: &Part) -> Result<Placer, PartError> {
        let mapping = &part.mapping;
        let wrong = |why: String| PartError::Mapping { mapping: mapping.text.clone(), why };
        let low_bits = mapping.low_bits();
        let columns = part.columns();
        if low_bits > 0 && columns >> low_bits == 0 {
            return Err(wrong(format!("`co{low_bits}`: a row has {columns} bursts only")));
        }
        let count = |field: Field| -> u64 {
            match field {
                Field::Row => 1,
                Field::Rank => u64::from(part.ranks),
                Field::Group => u64::from(part.bank_groups),
                Field::Bank => u64::from(part.banks_per_group),
                Field::Channel => u64::from(part.channels),
                Field::PseudoChannel => u64::from(part.pseudo_channels),
                Field::Column => columns >> low_bits,
                Field::LowColumn(bits) => 1 << bits,
            }
        };
        for (field, name) in [
            (Field::Rank, "ra"),
            (Field::Group, "bg"),
            (Field::Bank, "ba"),
            (Field::Channel, "ch"),
            (Field::PseudoChannel, "pc"),
        ] {
            if count(field) > 1 && !mapping.has(field) {
                return Err(wrong(format!("`{name}` is missing, and the part has {} of it", count(field))));
            }
        }
        let powers = mapping.fields.iter().all(|field| count(*field).is_power_of_two());
        if !powers && mapping.hash != Hash::None {
            return Err(wrong("a hash needs counts that are powers of two".to_owned()));
        }
        let mut placer = Placer {
            burst_shift: part.burst_bytes.trailing_zeros(),
            channel: Slice::default(),
            pseudo_channel: Slice::default(),
            rank: Slice::default(),
            group: Slice::default(),
            bank: Slice::default(),
            low_column: Slice::default(),
            column: Slice::default(),
            row_shift: 0,
            low_bits,
            hash: mapping.hash,
            hashes: [HashStep::default(); 4],
            groups: part.bank_groups,
            ranks: part.ranks,
            banks: part.banks_per_group,
            divided: None,
        };
        if !powers {
            placer.divided = Some(mapping.fields.iter().map(|field| (*field, count(*field))).collect());
            return Ok(placer);
        }
        let mut shift = 0;
        for field in &mapping.fields {
            let bits = count(*field).trailing_zeros();
            let slice = Slice { shift, mask: (1u32 << bits) - 1 };
            match field {
                Field::Row => placer.row_shift = shift,
                Field::Rank => placer.rank = slice,
                Field::Group => placer.group = slice,
                Field::Bank => placer.bank = slice,
                Field::Channel => placer.channel = slice,
                Field::PseudoChannel => placer.pseudo_channel = slice,
                Field::Column => placer.column = slice,
                Field::LowColumn(_) => placer.low_column = slice,
            }
            shift += bits;
        }
        let mut taken = 0;
        for (step, count) in
            placer.hashes.iter_mut().zip([part.pseudo_channels, part.ranks, part.bank_groups, part.banks_per_group])
        {
            *step = HashStep { shift: taken, mask: count - 1 };
            taken += count.trailing_zeros();
        }
        Ok(placer)
    }

    /// The first address that cannot be placed: rows are counted in 31 bits.
    #[must_use]
    pub fn end(&self) -> u64 {
        let below = self.divided.as_ref().map_or_else(
            || 1u64 << self.row_shift,
            |fields| fields.iter().fold(1, |product: u64, (_, count)| product.saturating_mul(*count)),
        );
        below.saturating_mul(1 << 31).saturating_mul(1 << self.burst_shift)
    }

    pub(super) fn burst_shift(&self) -> u32 {
        self.burst_shift
    }

    /// The burst that holds an address, counted from address zero.
    #[must_use]
    #[inline]
    pub fn burst(&self, address: u64) -> u64 {
        address >> self.burst_shift
    }

    /// Where a burst lies.
    #[must_use]
    #[inline]
    pub fn place(&self, burst: u64) -> Place {
        if let Some(fields) = &self.divided {
            return self.place_divided(fields, burst);
        }
        let column = self.low_column.of(burst) | self.column.of(burst) << self.low_bits;
        let row = (burst >> self.row_shift) as u32;
        let mut parts = [self.pseudo_channel.of(burst), self.rank.of(burst), self.group.of(burst), self.bank.of(burst)];
        if self.hash != Hash::None {
            let source = if self.hash == Hash::Column { column } else { row };
            for (part, step) in parts.iter_mut().zip(self.hashes) {
                *part ^= source.checked_shr(step.shift).unwrap_or(0) & step.mask;
            }
        }
        Place { channel: self.channel.of(burst), bank: self.flat(parts), row, column }
    }

    #[inline]
    fn flat(&self, [pseudo_channel, rank, group, bank]: [u32; 4]) -> u32 {
        ((pseudo_channel * self.ranks + rank) * self.groups + group) * self.banks + bank
    }

    fn place_divided(&self, fields: &[(Field, u64)], burst: u64) -> Place {
        let mut rest = burst;
        let mut parts = [0; 4];
        let mut place = Place { channel: 0, bank: 0, row: 0, column: 0 };
        for (field, count) in fields {
            let value = (rest % count) as u32;
            let above = rest / count;
            match field {
                Field::Row => place.row = rest as u32,
                Field::PseudoChannel => parts[0] = value,
                Field::Rank => parts[1] = value,
                Field::Group => parts[2] = value,
                Field::Bank => parts[3] = value,
                Field::Channel => place.channel = value,
                Field::LowColumn(_) => place.column |= value,
                Field::Column => place.column |= value << self.low_bits,
            }
            rest = above;
        }
        place.bank = self.flat(parts);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dram::described;

    fn place(mapping: &str, address: u64) -> Place {
        let part = Part { mapping: Mapping::parse(mapping).unwrap(), ..described::hbm2_8gb_x128() };
        let placer = Placer::new(&part).unwrap();
        placer.place(placer.burst(address))
    }

    #[test]
    fn fields_fall_where_the_order_says() {
        // 32 columns of 64 B, 8 channels, 4 banks, 4 groups: 5 + 3 + 2 + 2 bits over 6.
        assert_eq!(place("rorabgbachco", 64 * 33), Place { channel: 1, bank: 0, row: 0, column: 1 });
        assert_eq!(place("rorabgbachco", 2048 * 8), Place { channel: 0, bank: 1, row: 0, column: 0 });
        assert_eq!(place("rorabgbachco", 2048 * 8 * 4), Place { channel: 0, bank: 4, row: 0, column: 0 });
        assert_eq!(place("rorabgbachco", 2048 * 8 * 16 + 63), Place { channel: 0, bank: 0, row: 1, column: 0 });
        assert_eq!(place("rorabacobgch", 64 * 9), Place { channel: 1, bank: 4, row: 0, column: 0 });
    }

    #[test]
    fn every_burst_has_a_place_of_its_own_hashed_or_not() {
        for mapping in ["rorabgbachco", "rorabacobgch", "rocobabgchco2+xorco", "rocochbabgco2+xorro", "robabgchco"] {
            let part = Part { mapping: Mapping::parse(mapping).unwrap(), ..described::hbm2_8gb_x128() };
            let placer = Placer::new(&part).unwrap();
            let mut seen: Vec<_> = (0..1 << 14)
                .map(|burst| placer.place(burst))
                .map(|place| (place.channel, place.bank, place.row, place.column))
                .collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 1 << 14, "{mapping}");
        }
    }

    #[test]
    fn counts_that_are_no_powers_of_two_are_divided() {
        let part = Part { channels: 12, mapping: Mapping::parse("robgbacoch").unwrap(), ..described::hbm2_8gb_x128() };
        let placer = Placer::new(&part).unwrap();
        assert_eq!(placer.place(11).channel, 11);
        assert_eq!(placer.place(12), Place { channel: 0, bank: 0, row: 0, column: 1 });
        let mut channels = [0; 12];
        (0..12_000).for_each(|burst| channels[placer.place(burst).channel as usize] += 1);
        assert_eq!(channels, [1000; 12]);
    }

    #[test]
    fn a_wrong_mapping_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "`ro` comes first"),
            ("chco", "`ro` comes first"),
            ("rochch", "`ch` comes twice"),
            ("rochx", "`x` is no field"),
            ("rozzco", "`zz` is no field"),
            ("rochbgba", "`co` is missing"),
            ("roco99ch", "between 1 and 16 bits"),
            ("roco2chco", "come below the others"),
            ("rochco+sum", "`+sum` is neither"),
            ("roéco", "no field"),
        ] {
            let error = Mapping::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let part = Part { mapping: Mapping::parse("rochco").unwrap(), ..described::hbm2_8gb_x128() };
        assert!(Placer::new(&part).unwrap_err().to_string().contains("`bg` is missing, and the part has 4 of it"));
    }
}
