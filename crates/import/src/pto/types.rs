//! Types of the dialect, from their text.

use npumem_ir::ElementType;
use npumem_ir::program::Layout;

/// A type, as far as memory is concerned.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// A tile in an on-chip space.
    Tile(TileType),
    /// A memref: shape (`None` where dynamic), element and space.
    Memref { shape: Vec<Option<u64>>, element: ElementType, space: String, layout: Option<Vec<i64>> },
    /// A view of global memory.
    View { shape: Vec<Option<u64>>, element: ElementType },
    /// A pointer to global memory.
    Pointer(ElementType),
    /// An integer, `index` or `i1`.
    Int,
    /// A float.
    Real,
    /// Anything else: events, pipes, sessions, vectors.
    Other,
}

/// `!pto.tile_buf<...>`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TileType {
    pub space: String,
    pub element: ElementType,
    pub shape: Vec<u64>,
    /// The valid part; `None` where it is decided at run time.
    pub valid: Vec<Option<u64>>,
    pub layout: Layout,
}

impl TileType {
    /// Bytes of the whole tile; `None` past 63 bits.
    pub fn bytes(&self) -> Option<u64> {
        let count = self.shape.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim))?;
        self.element.bytes(count).map(|bytes| bytes.0).filter(|bytes| i64::try_from(*bytes).is_ok())
    }
}

/// Element types by the dialect's names.
pub(super) fn element(name: &str) -> Option<ElementType> {
    use ElementType::*;
    Some(match name {
        "f64" => F64,
        "f32" | "tf32" => F32,
        "f16" => F16,
        "bf16" | "!pto.bf16" => Bf16,
        "i64" | "si64" | "index" => I64,
        "i32" | "si32" => I32,
        "i16" | "si16" => I16,
        "i8" | "si8" | "hif8" => I8,
        "i4" | "si4" => I4,
        "i1" => Bool,
        "ui64" => U64,
        "ui32" => U32,
        "ui16" => U16,
        "ui8" => U8,
        "ui4" => U4,
        _ => {
            let lower = name.trim_start_matches("!pto.").to_ascii_lowercase();
            if lower.starts_with("f8e4m3") {
                F8e4m3
            } else if lower.starts_with("f8e5m2") {
                F8e5m2
            } else if lower.starts_with("f8e8m0") {
                F8e8m0
            } else if lower.starts_with("f4e") {
                F4e2m1
            } else if lower.starts_with("hif8") {
                I8
            } else {
                return None;
            }
        }
    })
}

/// Reads a type; the error says what was expected.
pub(super) fn parse(text: &str) -> Result<Type, String> {
    let text = text.trim();
    let (head, inner) = match text.find('<') {
        Some(open) if text.ends_with('>') => (&text[..open], Some(&text[open + 1..text.len() - 1])),
        _ => (text, None),
    };
    match (head.trim(), inner) {
        ("!pto.tile_buf", Some(inner)) => tile(inner).map(Type::Tile),
        ("!pto.tile_view", Some(inner)) => shaped(inner).map(|(shape, element, _)| Type::View { shape, element }),
        ("!pto.tensor_view" | "!pto.partition_tensor_view", Some(inner)) => {
            shaped(inner).map(|(shape, element, _)| Type::View { shape, element })
        }
        ("memref" | "", Some(inner)) => memref(inner),
        ("!pto.ptr", Some(inner)) => {
            let name = split(inner).first().copied().unwrap_or("");
            element(name).map(Type::Pointer).ok_or_else(|| format!("'{name}' is not an element type"))
        }
        ("!pto.tile_buf" | "!pto.ptr" | "memref" | "!pto.tensor_view", None) => {
            Err(format!("'{text}' lacks its parameters in <...>"))
        }
        ("index", _) => Ok(Type::Int),
        // Types of a dialect have a dot; a name without one is an alias of the file.
        (head, None) if head.starts_with('!') && !head.contains('.') => {
            Err(format!("the type '{head}' is not defined: expected '{head} = ...' at the top of the file"))
        }
        (head, None) if element(head).is_some() && !head.starts_with('!') => {
            Ok(if head.starts_with(['i', 'u', 's']) { Type::Int } else { Type::Real })
        }
        _ => Ok(Type::Other),
    }
}

/// Splits at commas outside of brackets.
pub(super) fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'[' | b'{' | b'(' => depth += 1,
            b'>' | b']' | b'}' | b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// The name inside `#pto.address_space<vec>` or `<vec>`.
pub(super) fn space_name(text: &str) -> Option<&str> {
    let inner = text.split_once('<')?.1.strip_suffix('>')?.trim();
    Some(inner.trim_start_matches("address_space").trim())
}

fn dimension(text: &str) -> Result<Option<u64>, String> {
    match text {
        "?" | "-1" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| format!("'{text}' is not a dimension: expected a number or '?'")),
    }
}

/// Dimensions, element, and the parts after the first comma.
type Shaped<'t> = (Vec<Option<u64>>, ElementType, Vec<&'t str>);

/// `16x32xf16` with what follows the first comma.
fn shaped(inner: &str) -> Result<Shaped<'_>, String> {
    let parts = split(inner);
    let head: String = parts.first().copied().unwrap_or("").split_whitespace().collect();
    let mut rest = head.as_str();
    let mut shape = Vec::new();
    while let Some((dim, tail)) = rest.split_once('x') {
        if dim != "?" && !dim.starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        shape.push(dimension(dim)?);
        rest = tail;
        if shape.len() > 16 {
            return Err("more than 16 dimensions".into());
        }
    }
    let element = element(rest).ok_or_else(|| format!("'{rest}' is not an element type"))?;
    Ok((shape, element, parts[1..].to_vec()))
}

fn memref(inner: &str) -> Result<Type, String> {
    let (shape, element, rest) = shaped(inner)?;
    let mut space = "gm".to_owned();
    let mut layout = None;
    for part in rest {
        if part.contains("address_space") || part.starts_with('<') {
            space = space_name(part).ok_or_else(|| format!("'{part}' is not an address space"))?.to_owned();
        } else if let Some(strides) = part.strip_prefix("strided<[") {
            let list = strides.split(']').next().unwrap_or("");
            let list: Option<Vec<i64>> = list.split(',').map(|s| s.trim().parse().ok()).collect();
            layout = list;
        }
    }
    Ok(Type::Memref { shape, element, space: canonical_space(&space), layout })
}

fn canonical_space(name: &str) -> String {
    match name {
        "ub" => "vec".into(),
        "cbuf" | "l1" => "mat".into(),
        "zero" | "default" => "gm".into(),
        other => other.to_owned(),
    }
}

/// A field stands once: of two values nobody could say which one counts.
fn once(parts: &[&str]) -> Result<(), String> {
    let mut keys: Vec<&str> = parts.iter().filter_map(|part| Some(part.split_once('=')?.0.trim())).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("'{}' is given twice in a tile", pair[0])),
        None => Ok(()),
    }
}

fn tile(inner: &str) -> Result<TileType, String> {
    let parts = split(inner);
    let first = parts.first().copied().unwrap_or("");
    let mut space = None;
    let mut fields = TileType {
        space: String::new(),
        element: ElementType::U8,
        shape: Vec::new(),
        valid: Vec::new(),
        layout: Layout::RowMajor,
    };
    once(&parts)?;
    let (mut outer, mut inner_layout, mut fractal) = ("row_major", "none_box", 512_u64);
    let known = |name: &str| matches!(name, "vec" | "mat" | "left" | "right" | "acc" | "bias" | "scaling" | "gm");
    let number =
        |key: &str, value: &str| value.parse::<u64>().map_err(|_| format!("{key}={value} is not a number of elements"));
    if !first.contains('=') {
        // `<32x64xf32, #pto.address_space<vec>>` or the compact `<left, 32x32xf32, slayout=row_major>`.
        let (shape_at, rest) = if known(first) { (1, 2) } else { (0, 1) };
        if known(first) {
            space = Some(first.to_owned());
        }
        let head = parts.get(shape_at).copied().unwrap_or("");
        let (shape, element, _) = shaped(head)?;
        fields.element = element;
        fields.shape = shape.iter().map(|dim| dim.unwrap_or(0)).collect();
        fields.valid = shape;
        if shape_at == 1 && matches!(first, "left" | "right" | "mat" | "acc") {
            (outer, inner_layout) = match first {
                "left" => ("row_major", "row_major"),
                "right" => ("row_major", "col_major"),
                _ => ("col_major", "row_major"),
            };
        }
        for part in &parts[rest.min(parts.len())..] {
            match part.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
                Some(("blayout", value)) => outer = value,
                Some(("slayout", value)) => inner_layout = value,
                Some(("fractal", value)) => fractal = number("fractal", value)?,
                Some(("valid", _) | ("pad", _) | ("compact", _) | ("v_row", _) | ("v_col", _)) => {}
                None if part.contains("address_space") => space = space_name(part).map(str::to_owned),
                None if part.starts_with("strided") || part.starts_with("#pto") => {}
                _ => return Err(format!("'{part}' is not a field of a tile")),
            }
        }
        fields.space = canonical_space(&space.unwrap_or_else(|| "vec".into()));
    } else {
        let (mut rows, mut cols, mut element_type, mut v_row, mut v_col) = (None, None, None, None, None);
        for part in &parts {
            let Some((key, value)) = part.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
                return Err(format!("expected key=value in a tile, found '{part}'"));
            };
            match key {
                "loc" if known(value) => space = Some(value.to_owned()),
                "loc" => {
                    return Err(format!("loc={value}: expected vec, mat, left, right, acc, bias or scaling"));
                }
                "dtype" => {
                    let found = element(value).ok_or_else(|| format!("dtype={value} is not an element type"))?;
                    element_type = Some(found);
                }
                "rows" => rows = Some(number(key, value)?),
                "cols" => cols = Some(number(key, value)?),
                "v_row" => v_row = Some(dimension(value)?),
                "v_col" => v_col = Some(dimension(value)?),
                "blayout" => outer = value,
                "slayout" => inner_layout = value,
                "fractal" => fractal = number(key, value)?,
                "pad" | "compact" => {
                    number(key, value)?;
                }
                _ => return Err(format!("'{key}' is not a field of a tile")),
            }
        }
        let missing = |name: &str| format!("a tile needs '{name}='");
        fields.space = space.ok_or_else(|| missing("loc"))?;
        fields.element = element_type.ok_or_else(|| missing("dtype"))?;
        let (rows, cols) = (rows.ok_or_else(|| missing("rows"))?, cols.ok_or_else(|| missing("cols"))?);
        fields.shape = vec![rows, cols];
        let (v_row, v_col) = (v_row.unwrap_or(Some(rows)), v_col.unwrap_or(Some(cols)));
        if v_row.is_some_and(|valid| valid > rows) || v_col.is_some_and(|valid| valid > cols) {
            return Err(format!("the valid part is larger than the tile of {rows}x{cols}"));
        }
        fields.valid = vec![v_row, v_col];
    }
    fields.layout = match (outer, inner_layout) {
        ("row_major" | "0", "none_box" | "0") => Layout::RowMajor,
        ("col_major" | "1", "none_box" | "0") => Layout::ColMajor,
        (outer, inner) => Layout::Fractal {
            outer_col: matches!(outer, "col_major" | "1"),
            inner_col: matches!(inner, "col_major" | "2"),
            bytes: fractal,
        },
    };
    if fields.bytes().is_none() {
        return Err("the tile takes more than 63 bits of bytes".into());
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_in_every_form() {
        let Ok(Type::Tile(tile)) = parse(
            "!pto.tile_buf<loc=left, dtype=bf16, rows=16, cols=64, v_row=?, v_col=8, blayout=col_major, slayout=row_major, fractal=512, pad=0>",
        ) else {
            panic!("a tile")
        };
        assert_eq!((tile.space.as_str(), tile.bytes()), ("left", Some(2048)));
        assert_eq!(tile.valid, [None, Some(8)]);
        assert_eq!(tile.layout, Layout::Fractal { outer_col: true, inner_col: false, bytes: 512 });
        let Ok(Type::Tile(tile)) = parse("!pto.tile_buf<left, 32x32xf32, slayout=row_major>") else {
            panic!("compact")
        };
        assert_eq!((tile.space.as_str(), tile.bytes()), ("left", Some(4096)));
        assert!(parse("!pto.tile_buf<loc=vec, dtype=f32, rows=32>").unwrap_err().contains("cols"));
        assert!(
            parse("!pto.tile_buf<loc=elsewhere, dtype=f32, rows=1, cols=1>").unwrap_err().contains("loc=elsewhere")
        );
        assert!(parse("!pto.tile_buf<loc=vec, dtype=f32, rows=4294967296, cols=4294967296>").is_err());
        assert!(parse("!pto.tile_buf<loc=vec, dtype=f32, rows=-4, cols=4>").is_err());
        for twice in ["loc=vec, loc=mat, dtype=f32, rows=1, cols=8", "loc=vec, dtype=f32, rows=1, cols=8, rows=1"] {
            let error = parse(&format!("!pto.tile_buf<{twice}>")).unwrap_err();
            assert!(error.ends_with("is given twice in a tile"), "{error}");
        }
        assert!(parse("!pto.tile_buf<left, 32x32xf32, slayout=row_major, slayout=col_major>").is_err());
    }

    #[test]
    fn memrefs_carry_their_space() {
        assert_eq!(
            parse("memref<16x?xf16, strided<[64, 1], offset: ?>, #pto.address_space<vec>>"),
            Ok(Type::Memref {
                shape: vec![Some(16), None],
                element: ElementType::F16,
                space: "vec".into(),
                layout: Some(vec![64, 1]),
            })
        );
        assert_eq!(parse("i1"), Ok(Type::Int));
        assert_eq!(parse("bf16"), Ok(Type::Real));
    }
}
