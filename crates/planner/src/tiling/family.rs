//! The families of operators: which dims, operands and work each has.

use super::operator::{
    Axis, Dim, DimRole, MAX_DIM, Operand, OperandRole, Operator, OperatorError, OperatorKind, Side, Unit, limit,
};
use super::spec::{Fields, SpecError};
use npumem_ir::ElementType;

/// The words that begin a spec.
pub const FAMILIES: [&str; 13] = [
    "matmul",
    "conv",
    "depthwise",
    "pool",
    "elementwise",
    "reduce",
    "softmax",
    "layernorm",
    "rmsnorm",
    "attention",
    "embedding",
    "gather",
    "transpose",
];

/// Functions that an epilogue or an elementwise chain may apply, and the vector operations of each per element.
const FUNCTIONS: [(&str, u64); 17] = [
    ("add", 1),
    ("sub", 1),
    ("mul", 1),
    ("div", 1),
    ("max", 1),
    ("min", 1),
    ("relu", 1),
    ("neg", 1),
    ("abs", 1),
    ("exp", 1),
    ("sqrt", 1),
    ("cast", 1),
    ("sigmoid", 3),
    ("silu", 4),
    ("swiglu", 5),
    ("tanh", 4),
    ("gelu", 8),
];

/// Makes the operator that the fields describe.
///
/// # Errors
/// The first mistake.
pub fn build(fields: &Fields) -> Result<Operator, SpecError> {
    match fields.family.as_str() {
        "matmul" | "gemm" | "batchmatmul" => matmul(fields),
        "conv" => conv(fields, None),
        "depthwise" => {
            let channels = fields.dim("c", "channels", CONV_EXAMPLE)?;
            conv(fields, Some(channels))
        }
        "pool" => pool(fields),
        "elementwise" => elementwise(fields),
        "reduce" => reduce(fields),
        "softmax" => row_wise(fields, OperatorKind::Softmax),
        "layernorm" | "rmsnorm" => row_wise(fields, OperatorKind::Norm),
        "attention" => attention(fields),
        "embedding" | "gather" => gather(fields),
        "transpose" => transpose(fields),
        other => Err(SpecError::Syntax {
            column: 1,
            problem: format!("'{other}' is no operator; there are {}", FAMILIES.join(", ")),
        }),
    }
}

/// What sums of this type are kept in.
#[must_use]
pub fn accumulator(element: ElementType) -> ElementType {
    match element {
        ElementType::F64 => ElementType::F64,
        ElementType::I8
        | ElementType::U8
        | ElementType::I4
        | ElementType::U4
        | ElementType::I2
        | ElementType::U2
        | ElementType::I16
        | ElementType::U16
        | ElementType::I32
        | ElementType::U32
        | ElementType::Bool => ElementType::I32,
        _ => ElementType::F32,
    }
}

fn dim(name: &str, extent: u64, role: DimRole) -> Dim {
    Dim { name: name.to_owned(), extent, role, whole: false }
}

fn operand(name: &str, element: ElementType, role: OperandRole, side: Side, axes: Vec<Axis>) -> Operand {
    Operand { name: name.to_owned(), element, role, side, axes }
}

/// An operator with nothing but its dims and operands.
fn plain(fields: &Fields, kind: OperatorKind, dims: Vec<Dim>, operands: Vec<Operand>, unit: Unit) -> Operator {
    let computes = operands.first().map_or(ElementType::F32, |operand| operand.element);
    let points = dims.iter().fold(1_u128, |product, dim| product.saturating_mul(u128::from(dim.extent)));
    Operator {
        kind,
        name: text_of(fields),
        accumulates: accumulator(computes),
        computes,
        dims,
        operands,
        unit,
        matrix_per_point: 0,
        vector_per_output: 0,
        vector_per_point: 0,
        epilogue: Vec::new(),
        split: 1,
        passes: 1,
        points,
    }
}

fn text_of(fields: &Fields) -> String {
    let mut text = fields.family.clone();
    for field in &fields.fields {
        text.push(' ');
        text.push_str(&field.key);
        text.push('=');
        text.push_str(&field.value);
    }
    text
}

/// The wider of two types that are multiplied.
fn wider(a: ElementType, b: ElementType) -> ElementType {
    if b.bits() > a.bits() { b } else { a }
}

/// Functions separated by `,` or `+`, each known.
fn functions(fields: &Fields, key: &str) -> Result<(Vec<String>, u64), SpecError> {
    let Some(field) = fields.get(key) else { return Ok((Vec::new(), 0)) };
    let mut list = Vec::new();
    let mut operations = 0;
    for word in field.value.split([',', '+']).filter(|word| *word != "none") {
        match FUNCTIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
            Some((name, count)) => {
                list.push((*name).to_owned());
                operations += count;
            }
            None => {
                let known: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
                return Err(fields.wrong(field, format!("'{word}' is no function; there are {}", known.join(", "))));
            }
        }
    }
    Ok((list, operations))
}

fn flag(fields: &Fields, key: &str) -> Result<bool, SpecError> {
    Ok(matches!(fields.word(key, &["true", "false", "yes", "no", "1", "0"], "false")?.as_str(), "true" | "yes" | "1"))
}

/// An optional bias or residual: absent, `true` for the output's type, or a type.
fn late(fields: &Fields, key: &str, default: ElementType) -> Result<Option<ElementType>, SpecError> {
    match fields.get(key).map(|field| field.value.to_ascii_lowercase()) {
        None => Ok(None),
        Some(value) if value == "true" || value == "yes" || value == "1" => Ok(Some(default)),
        Some(value) if value == "false" || value == "no" || value == "0" => Ok(None),
        Some(_) => fields.element(key, default).map(Some),
    }
}

const MATMUL_EXAMPLE: &str = "matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f32";

fn matmul(fields: &Fields) -> Result<Operator, SpecError> {
    let m = fields.dim("m", "rows of the result", MATMUL_EXAMPLE)?;
    let n = fields.dim("n", "columns of the result", MATMUL_EXAMPLE)?;
    let k = fields.dim("k", "the summed dimension", MATMUL_EXAMPLE)?;
    let batch = fields.dim_or("batch", 1)?;
    let a = fields.element("a", ElementType::F16)?;
    let b = fields.element("b", a)?;
    let computes = wider(a, b);
    let sums = fields.element("acc", accumulator(computes))?;
    let c = fields.element("c", if computes.bits() == 8 { sums } else { computes })?;
    let turned = fields.word("transpose", &["none", "a", "b", "ab"], "none")?;
    let shared = fields.word("shared", &["none", "a", "b"], "none")?;
    let mut dims = Vec::new();
    if batch > 1 {
        dims.push(dim("batch", batch, DimRole::Parallel));
    }
    let (row, column, deep) = (dims.len(), dims.len() + 1, dims.len() + 2);
    dims.push(dim("m", m, DimRole::Parallel));
    dims.push(dim("n", n, DimRole::Parallel));
    dims.push(dim("k", k, DimRole::Reduction));
    let axes = |mine: &str, first: Axis, second: Axis| {
        let mut axes = if batch > 1 && shared != mine { vec![Axis::plain(0, batch)] } else { Vec::new() };
        let swap = mine != "c" && turned.contains(mine);
        axes.extend(if swap { [second, first] } else { [first, second] });
        axes
    };
    let (along_m, along_n, along_k) = (Axis::plain(row, m), Axis::plain(column, n), Axis::plain(deep, k));
    let mut operands = vec![
        operand("a", a, OperandRole::Input, Side::Left, axes("a", along_m.clone(), along_k.clone())),
        operand("b", b, OperandRole::Input, Side::Right, axes("b", along_k, along_n.clone())),
    ];
    let (epilogue, mut per_output) = functions(fields, "act")?;
    if let Some(element) = late(fields, "bias", sums)? {
        operands.push(operand("bias", element, OperandRole::Late, Side::Vector, vec![along_n.clone()]));
        per_output += 1;
    }
    if let Some(element) = late(fields, "residual", c)? {
        operands.push(operand(
            "residual",
            element,
            OperandRole::Late,
            Side::Vector,
            axes("c", along_m.clone(), along_n.clone()),
        ));
        per_output += 1;
    }
    operands.push(operand("c", c, OperandRole::Output, Side::Accumulator, axes("c", along_m, along_n)));
    let split = fields.dim_or("split", 1)?;
    if split > k {
        return Err(OperatorError::NotDivisible {
            what: "k".into(),
            value: k,
            by: "a split of".into(),
            divisor: split,
        }
        .into());
    }
    let operator = plain(fields, OperatorKind::Matmul, dims, operands, Unit::Matrix);
    Ok(Operator {
        computes,
        accumulates: sums,
        matrix_per_point: 2,
        vector_per_output: per_output,
        epilogue,
        split,
        ..operator
    })
}

const CONV_EXAMPLE: &str = "conv c=64 size=56x56 k=64 kernel=3x3 pad=1 in=f16 weight=f16 out=f16";

/// What a window does along one spatial axis.
struct Window {
    input: u64,
    output: u64,
    kernel: u64,
    stride: u64,
    dilation: u64,
    before: u64,
    /// Input positions spread out and the kernel laid over each.
    transposed: bool,
}

impl Window {
    fn axis(&self, out: usize, kernel: usize) -> Axis {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        if self.transposed {
            let terms = vec![(out, 1), (kernel, -signed(self.dilation))];
            return Axis { terms, offset: signed(self.before), divide: self.stride, extent: self.input, loose: false };
        }
        let terms = vec![(out, signed(self.stride)), (kernel, signed(self.dilation))];
        Axis { terms, offset: -signed(self.before), divide: 1, extent: self.input, loose: false }
    }
}

/// The windows of a convolution or pooling.
fn windows(fields: &Fields, example: &str, transposed: bool, global: bool) -> Result<Vec<Window>, SpecError> {
    let Some(size) = fields.list("size")? else {
        return Err(SpecError::Missing {
            family: fields.family.clone(),
            key: "size".into(),
            meaning: "the input's height and width".into(),
            example: example.into(),
        });
    };
    let rank = size.len();
    if rank > 3 {
        return Err(SpecError::Syntax { column: 1, problem: format!("size has {rank} dimensions; 1 to 3 are known") });
    }
    let kernel = if global { size.clone() } else { fields.list_of("kernel", rank, 1)? };
    let stride = fields.list_of("stride", rank, 1)?;
    let dilation = fields.list_of("dilation", rank, 1)?;
    let pad = fields.list_of("pad", rank, 0)?;
    let end = match fields.get("pad-end") {
        Some(_) => fields.list_of("pad-end", rank, 0)?,
        None => pad.clone(),
    };
    let extra = fields.list_of("output-pad", rank, 0)?;
    let ceil = flag(fields, "ceil")?;
    let mut found = Vec::with_capacity(rank);
    for at in 0..rank {
        for (name, value) in
            [("size", size[at]), ("kernel", kernel[at]), ("stride", stride[at]), ("dilation", dilation[at])]
        {
            limit(name, value)?;
        }
        for (name, value) in [("pad", pad[at]), ("pad-end", end[at]), ("output-pad", extra[at])] {
            if value > 0 {
                limit(name, value)?;
            }
        }
        let reach = dilation[at] * (kernel[at] - 1) + 1;
        let padded = size[at] + pad[at] + end[at];
        let no_output = || OperatorError::NoOutput {
            name: format!("axis {at}"),
            kernel: kernel[at],
            dilation: dilation[at],
            input: padded,
        };
        let output = if transposed {
            let full = (size[at] - 1) * stride[at] + reach + extra[at];
            full.checked_sub(pad[at] + end[at]).filter(|out| *out > 0).ok_or_else(no_output)?
        } else {
            let room = padded.checked_sub(reach).ok_or_else(no_output)?;
            let count = if ceil { room.div_ceil(stride[at]) } else { room / stride[at] } + 1;
            // A window that begins past the data makes no output.
            if ceil && (count - 1) * stride[at] >= size[at] + pad[at] { count - 1 } else { count }
        };
        found.push(Window {
            input: size[at],
            output,
            kernel: kernel[at],
            stride: stride[at],
            dilation: dilation[at],
            before: pad[at],
            transposed,
        });
    }
    Ok(found)
}

const OUT_NAMES: [[&str; 3]; 3] = [["q", "", ""], ["p", "q", ""], ["o", "p", "q"]];
const KERNEL_NAMES: [[&str; 3]; 3] = [["s", "", ""], ["r", "s", ""], ["t", "r", "s"]];

/// All positions in one, where a window is one point and meets every one of them: no tile need know rows from columns.
fn single_points(windows: &[Window]) -> Option<u64> {
    let one = |window: &Window| {
        window.kernel == 1 && window.stride == 1 && window.before == 0 && window.input == window.output
    };
    let all = windows.iter().try_fold(1_u64, |all, window| all.checked_mul(window.input))?;
    (windows.len() > 1 && windows.iter().all(one) && all <= MAX_DIM).then_some(all)
}

fn conv(fields: &Fields, depthwise: Option<u64>) -> Result<Operator, SpecError> {
    let channels = fields.dim("c", "input channels", CONV_EXAMPLE)?;
    let filters = match depthwise {
        Some(channels) => fields.dim_or("k", channels)?,
        None => fields.dim("k", "output channels", CONV_EXAMPLE)?,
    };
    let groups = fields.dim_or("groups", depthwise.unwrap_or(1))?;
    for (what, value) in [("c", channels), ("k", filters)] {
        if value % groups != 0 {
            let by = "groups".to_owned();
            return Err(OperatorError::NotDivisible { what: what.into(), value, by, divisor: groups }.into());
        }
    }
    let transposed = flag(fields, "transposed")?;
    let mut windows = windows(fields, CONV_EXAMPLE, transposed, false)?;
    let points = single_points(&windows);
    let batch = fields.dim_or("n", 1)?;
    let input = fields.element("in", ElementType::F16)?;
    let weight = fields.element("weight", input)?;
    let computes = wider(input, weight);
    let sums = fields.element("acc", accumulator(computes))?;
    let out = fields.element("out", input)?;
    let last = fields.word("layout", &["nchw", "nhwc"], "nchw")? == "nhwc";
    let (per_in, per_out) = (channels / groups, filters / groups);
    let rank = windows.len();
    let mut dims = Vec::new();
    let mut add = |name: &str, extent: u64, role: DimRole| {
        (extent > 1).then(|| {
            dims.push(dim(name, extent, role));
            dims.len() - 1
        })
    };
    let n = add("n", batch, DimRole::Parallel);
    let g = add("g", groups, DimRole::Parallel);
    let k = add("k", per_out, DimRole::Parallel);
    if points.is_some() {
        windows.clear();
    }
    let all_points = points.map(|points| {
        dims.push(dim("pq", points, DimRole::Parallel));
        Axis::plain(dims.len() - 1, points)
    });
    // Spatial dims stay even at 1: the window needs them.
    let outs: Vec<usize> = windows
        .iter()
        .enumerate()
        .map(|(at, window)| {
            dims.push(dim(OUT_NAMES[rank - 1][at], window.output, DimRole::Parallel));
            dims.len() - 1
        })
        .collect();
    if per_in > 1 {
        dims.push(dim("c", per_in, DimRole::Reduction));
    }
    let c = (per_in > 1).then(|| dims.len() - 1);
    let kernels: Vec<usize> = windows
        .iter()
        .enumerate()
        .map(|(at, window)| {
            dims.push(dim(KERNEL_NAMES[rank - 1][at], window.kernel, DimRole::Reduction));
            dims.len() - 1
        })
        .collect();
    let plain_of = |dim: Option<usize>, extent: u64| dim.map(|dim| Axis::plain(dim, extent));
    let mut spatial: Vec<Axis> =
        windows.iter().enumerate().map(|(at, window)| window.axis(outs[at], kernels[at])).collect();
    spatial.extend(all_points.clone());
    let image = |chans: Vec<Axis>, space: Vec<Axis>| {
        let mut axes: Vec<Axis> = plain_of(n, batch).into_iter().collect();
        if last {
            axes.extend(space);
            axes.extend(chans);
        } else {
            axes.extend(chans);
            axes.extend(space);
        }
        axes
    };
    let in_channels: Vec<Axis> = plain_of(g, groups).into_iter().chain(plain_of(c, per_in)).collect();
    let out_channels: Vec<Axis> = plain_of(g, groups).into_iter().chain(plain_of(k, per_out)).collect();
    let mut out_space: Vec<Axis> =
        windows.iter().enumerate().map(|(at, window)| Axis::plain(outs[at], window.output)).collect();
    out_space.extend(all_points);
    let kernel_axes: Vec<Axis> =
        windows.iter().enumerate().map(|(at, window)| Axis::plain(kernels[at], window.kernel)).collect();
    let mut weights = out_channels.clone();
    if last {
        weights.extend(kernel_axes);
        weights.extend(plain_of(c, per_in));
    } else {
        weights.extend(plain_of(c, per_in));
        weights.extend(kernel_axes);
    }
    let mut operands = vec![
        operand("in", input, OperandRole::Input, Side::Left, image(in_channels, spatial)),
        operand("weight", weight, OperandRole::Input, Side::Right, weights),
    ];
    let (epilogue, mut per_output) = functions(fields, "act")?;
    if let Some(element) = late(fields, "bias", sums)? {
        operands.push(operand("bias", element, OperandRole::Late, Side::Vector, out_channels.clone()));
        per_output += 1;
    }
    if let Some(element) = late(fields, "residual", out)? {
        operands.push(operand(
            "residual",
            element,
            OperandRole::Late,
            Side::Vector,
            image(out_channels.clone(), out_space.clone()),
        ));
        per_output += 1;
    }
    operands.push(operand("out", out, OperandRole::Output, Side::Accumulator, image(out_channels, out_space)));
    let on_vector = per_in == 1 && per_out == 1;
    if on_vector {
        operands.iter_mut().for_each(|operand| operand.side = Side::Vector);
    }
    let unit = if on_vector { Unit::Vector } else { Unit::Matrix };
    let mut operator = plain(fields, OperatorKind::Conv, dims, operands, unit);
    if transposed {
        // Each input position meets each kernel position once.
        let skipped: u128 =
            windows.iter().map(|window| u128::from(window.output) * u128::from(window.kernel)).product();
        let met: u128 = windows.iter().map(|window| u128::from(window.input) * u128::from(window.kernel)).product();
        operator.points = operator.points / skipped.max(1) * met;
    }
    let (matrix, vector) = if on_vector { (0, 2) } else { (2, 0) };
    Ok(Operator {
        computes,
        accumulates: sums,
        matrix_per_point: matrix,
        vector_per_point: vector,
        vector_per_output: per_output,
        epilogue,
        ..operator
    })
}

fn pool(fields: &Fields) -> Result<Operator, SpecError> {
    let example = "pool c=64 size=112x112 kernel=3x3 stride=2 pad=1 type=f16 op=max";
    let channels = fields.dim("c", "channels", example)?;
    let batch = fields.dim_or("n", 1)?;
    let op = fields.word("op", &["max", "average", "avg"], "max")?;
    let global = flag(fields, "global")?;
    let windows = windows(fields, example, false, global)?;
    let element = fields.element("type", ElementType::F16)?;
    let last = fields.word("layout", &["nchw", "nhwc"], "nchw")? == "nhwc";
    let rank = windows.len();
    let mut dims = vec![dim("c", batch * channels, DimRole::Parallel)];
    if last && batch > 1 {
        dims = vec![dim("n", batch, DimRole::Parallel), dim("c", channels, DimRole::Parallel)];
    }
    let base = dims.len();
    for (at, window) in windows.iter().enumerate() {
        dims.push(dim(OUT_NAMES[rank - 1][at], window.output, DimRole::Parallel));
    }
    for (at, window) in windows.iter().enumerate() {
        dims.push(Dim { whole: true, ..dim(KERNEL_NAMES[rank - 1][at], window.kernel, DimRole::Reduction) });
    }
    let chans: Vec<Axis> = (0..base).map(|at| Axis::plain(at, dims[at].extent)).collect();
    let image = |space: Vec<Axis>| {
        let mut axes = Vec::new();
        if last {
            axes.extend(chans[..base - 1].iter().cloned());
            axes.extend(space);
            axes.push(chans[base - 1].clone());
        } else {
            axes.extend(chans.iter().cloned());
            axes.extend(space);
        }
        axes
    };
    let inner = windows.iter().enumerate().map(|(at, window)| window.axis(base + at, base + rank + at)).collect();
    let outer = windows.iter().enumerate().map(|(at, window)| Axis::plain(base + at, window.output)).collect();
    let operands = vec![
        operand("in", element, OperandRole::Input, Side::Vector, image(inner)),
        operand("out", element, OperandRole::Output, Side::Vector, image(outer)),
    ];
    let operator = plain(fields, OperatorKind::Pool, dims, operands, Unit::Vector);
    Ok(Operator { vector_per_point: 1, accumulates: element, epilogue: vec![op], ..operator })
}

/// The shape that a key gives, or an error that says how.
fn shape(fields: &Fields, example: &str) -> Result<Vec<u64>, SpecError> {
    let list = fields.list("shape")?.ok_or_else(|| SpecError::Missing {
        family: fields.family.clone(),
        key: "shape".into(),
        meaning: "the dimensions, outermost first".into(),
        example: example.into(),
    })?;
    for extent in &list {
        limit("shape", *extent)?;
    }
    Ok(list)
}

/// Neighbouring dims that every operand has alike become one: the fewer, the longer the runs.
fn merged(shape: &[u64], alike: &dyn Fn(usize, usize) -> bool) -> Vec<(u64, usize)> {
    let mut dims: Vec<(u64, usize)> = Vec::new();
    for (at, extent) in shape.iter().enumerate() {
        match dims.last_mut() {
            Some((product, first)) if alike(*first, at) => {
                // An axis of one element is like any other; what comes next must be like the one that counts.
                if *product == 1 {
                    *first = at;
                }
                *product = product.saturating_mul(*extent);
            }
            _ => dims.push((*extent, at)),
        }
    }
    dims
}

fn elementwise(fields: &Fields) -> Result<Operator, SpecError> {
    let example = "elementwise shape=1024x4096 a=f16 b=f16 b-shape=1x4096 op=add,relu";
    let shape = shape(fields, example)?;
    let first = fields.element("a", ElementType::F16)?;
    let mut inputs = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let own = fields.list(&format!("{name}-shape"))?;
        if name != "a" && own.is_none() && fields.get(name).is_none() {
            continue;
        }
        let element = fields.element(name, first)?;
        let mut own = own.unwrap_or_else(|| shape.clone());
        while own.len() < shape.len() {
            own.insert(0, 1);
        }
        let fits = own.len() == shape.len() && own.iter().zip(&shape).all(|(mine, all)| mine == all || *mine == 1);
        if let (false, Some(field)) = (fits, fields.get(&format!("{name}-shape"))) {
            return Err(fields.wrong(field, "each dimension must be 1 or that of 'shape'".to_owned()));
        }
        inputs.push((name, element, own));
    }
    let out = fields.element("out", first)?;
    let (functions, operations) = functions(fields, "op")?;
    let has = |input: usize, at: usize| inputs[input].2[at] == shape[at];
    let alike = |first: usize, second: usize| {
        (0..inputs.len()).all(|input| {
            let unit = |at: usize| shape[at] == 1;
            unit(first) || unit(second) || has(input, first) == has(input, second)
        })
    };
    let dims = merged(&shape, &alike);
    let space: Vec<Dim> =
        dims.iter().enumerate().map(|(at, (extent, _))| dim(&format!("i{at}"), *extent, DimRole::Parallel)).collect();
    let axes = |own: &dyn Fn(usize) -> bool| -> Vec<Axis> {
        dims.iter()
            .enumerate()
            .map(|(at, (extent, first))| if own(*first) { Axis::plain(at, *extent) } else { Axis::whole(1) })
            .collect()
    };
    let mut operands: Vec<Operand> = (0..inputs.len())
        .map(|at| operand(inputs[at].0, inputs[at].1, OperandRole::Input, Side::Vector, axes(&|first| has(at, first))))
        .collect();
    operands.push(operand("out", out, OperandRole::Output, Side::Vector, axes(&|_| true)));
    let operator = plain(fields, OperatorKind::Elementwise, space, operands, Unit::Vector);
    let operations = operations.max(inputs.len() as u64 - 1).max(1);
    Ok(Operator { vector_per_output: operations, accumulates: out, epilogue: functions, ..operator })
}

fn reduce(fields: &Fields) -> Result<Operator, SpecError> {
    let example = "reduce shape=1024x4096 axes=1 a=f16 c=f32 op=sum";
    let shape = shape(fields, example)?;
    let last = shape.len() as u64 - 1;
    let axes = fields.list("axes")?.unwrap_or_else(|| vec![last]);
    if let (Some(bad), Some(field)) = (axes.iter().find(|axis| **axis > last), fields.get("axes")) {
        return Err(fields.wrong(field, format!("axis {bad} of a shape with {} dimensions", shape.len())));
    }
    let op = fields.word("op", &["sum", "max", "min", "mean", "prod"], "sum")?;
    let from = fields.element("a", ElementType::F16)?;
    let to = fields.element("c", from)?;
    let gone = |at: usize| axes.contains(&(at as u64));
    let dims = merged(&shape, &|first, second| gone(first) == gone(second));
    let space: Vec<Dim> = dims
        .iter()
        .enumerate()
        .map(|(at, (extent, first))| {
            let role = if gone(*first) { DimRole::Reduction } else { DimRole::Parallel };
            dim(&format!("{}{at}", if gone(*first) { "r" } else { "i" }), *extent, role)
        })
        .collect();
    let all = dims.iter().enumerate().map(|(at, (extent, _))| Axis::plain(at, *extent)).collect();
    let mut kept: Vec<Axis> = dims
        .iter()
        .enumerate()
        .filter(|(_, (_, first))| !gone(*first))
        .map(|(at, (extent, _))| Axis::plain(at, *extent))
        .collect();
    if kept.is_empty() {
        kept.push(Axis::whole(1));
    }
    let operands = vec![
        operand("a", from, OperandRole::Input, Side::Vector, all),
        operand("c", to, OperandRole::Output, Side::Vector, kept),
    ];
    let operator = plain(fields, OperatorKind::Reduce, space, operands, Unit::Vector);
    Ok(Operator { vector_per_point: 1, epilogue: vec![op], ..operator })
}

/// Softmax and normalisations: every element of a row needs the whole row.
fn row_wise(fields: &Fields, kind: OperatorKind) -> Result<Operator, SpecError> {
    let shape = shape(fields, "softmax shape=1024x4096 a=f16")?;
    let from = fields.element("a", ElementType::F16)?;
    let to = fields.element("c", from)?;
    let columns = *shape.last().unwrap_or(&1);
    let rows = shape[..shape.len() - 1].iter().fold(1_u64, |product, extent| product.saturating_mul(*extent));
    let dims =
        vec![dim("rows", rows, DimRole::Parallel), Dim { whole: true, ..dim("columns", columns, DimRole::Parallel) }];
    let both = || vec![Axis::plain(0, rows), Axis::plain(1, columns)];
    let mut operands = vec![operand("a", from, OperandRole::Input, Side::Vector, both())];
    if kind == OperatorKind::Norm {
        let scale = fields.element("weight", from)?;
        operands.push(operand("weight", scale, OperandRole::Input, Side::Vector, vec![Axis::plain(1, columns)]));
        if fields.family == "layernorm" {
            operands.push(operand("bias", scale, OperandRole::Input, Side::Vector, vec![Axis::plain(1, columns)]));
        }
        if let Some(element) = late(fields, "residual", from)? {
            operands.push(operand("residual", element, OperandRole::Input, Side::Vector, both()));
        }
    }
    operands.push(operand("c", to, OperandRole::Output, Side::Vector, both()));
    // Computed in f32, with one statistic a row in a block of 32 bytes.
    operands.push(operand("work", ElementType::F32, OperandRole::Temporary, Side::Vector, both()));
    let statistics = vec![Axis::plain(0, rows), Axis::whole(8)];
    operands.push(operand("statistics", ElementType::F32, OperandRole::Temporary, Side::Vector, statistics));
    let operator = plain(fields, kind, dims, operands, Unit::Vector);
    let per_output = if kind == OperatorKind::Softmax { 5 } else { 7 };
    Ok(Operator { vector_per_output: per_output, accumulates: ElementType::F32, ..operator })
}

fn attention(fields: &Fields) -> Result<Operator, SpecError> {
    let example = "attention heads=32 kv-heads=8 q=4096 kv=4096 d=128 type=f16";
    let queries = fields.dim("q", "query rows of a head", example)?;
    let keys = fields.dim_or("kv", queries)?;
    let width = fields.dim("d", "width of a head", example)?;
    let value_width = fields.dim_or("dv", width)?;
    let heads = fields.dim_or("heads", 1)?;
    let kv_heads = fields.dim_or("kv-heads", heads)?;
    let batch = fields.dim_or("batch", 1)?;
    if heads % kv_heads != 0 {
        let (what, by) = ("heads".to_owned(), "kv-heads".to_owned());
        return Err(OperatorError::NotDivisible { what, value: heads, by, divisor: kv_heads }.into());
    }
    let element = fields.element("type", ElementType::F16)?;
    let cache = fields.element("cache", element)?;
    let out = fields.element("out", element)?;
    let causal = flag(fields, "causal")?;
    let page = fields.list("page")?.and_then(|list| list.first().copied());
    if let Some(page) = page {
        limit("page", page)?;
    }
    // Query heads that share keys are rows of one product.
    let rows = queries.saturating_mul(heads / kv_heads);
    let groups = batch.saturating_mul(kv_heads);
    let mut dims = Vec::new();
    if groups > 1 {
        dims.push(Dim { name: "h".into(), extent: groups, role: DimRole::Parallel, whole: false });
    }
    let lead: Vec<Axis> = if groups > 1 { vec![Axis::plain(0, groups)] } else { Vec::new() };
    let (q, k) = (dims.len(), dims.len() + 1);
    dims.push(dim("q", rows, DimRole::Parallel));
    dims.push(dim("kv", keys, DimRole::Reduction));
    let with = |axes: Vec<Axis>| lead.iter().cloned().chain(axes).collect::<Vec<_>>();
    let per_q = |width: u64| with(vec![Axis::plain(q, rows), Axis::whole(width)]);
    let per_k = |width: u64| with(vec![Axis::plain(k, keys), Axis::whole(width)]);
    let mut operands = vec![
        operand("query", element, OperandRole::Input, Side::Left, per_q(width)),
        operand("key", cache, OperandRole::Input, Side::Right, per_k(width)),
        operand("value", cache, OperandRole::Input, Side::Right, per_k(value_width)),
    ];
    if let Some(page) = page {
        let pages = vec![Axis { divide: page, ..Axis::plain(k, keys.div_ceil(page)) }];
        operands.push(operand("pages", ElementType::I32, OperandRole::Input, Side::Vector, with(pages)));
    }
    operands.push(operand("out", out, OperandRole::Output, Side::Accumulator, per_q(value_width)));
    let scores = || vec![Axis::plain(q, rows), Axis::plain(k, keys)];
    operands.push(operand("scores", ElementType::F32, OperandRole::Temporary, Side::Accumulator, scores()));
    operands.push(operand("weights", element, OperandRole::Temporary, Side::Left, scores()));
    let operator = plain(fields, OperatorKind::Attention, dims, operands, Unit::Matrix);
    let per_point = 2 * (width + value_width);
    let points = if causal && queries == keys { operator.points / 2 } else { operator.points };
    Ok(Operator {
        matrix_per_point: per_point,
        vector_per_point: 5,
        accumulates: ElementType::F32,
        points,
        epilogue: if causal { vec!["causal".into()] } else { Vec::new() },
        ..operator
    })
}

fn gather(fields: &Fields) -> Result<Operator, SpecError> {
    let example = "embedding rows=32000 count=4096 d=4096 table=f16 index=i32";
    let table_rows = fields.dim("rows", "rows of the table", example)?;
    let count = fields.dim("count", "rows that are taken", example)?;
    let width = fields.dim_or("d", 1)?;
    let element = fields.element("table", ElementType::F16)?;
    let index = fields.element("index", ElementType::I32)?;
    let _ = table_rows;
    let dims = vec![dim("i", count, DimRole::Parallel), dim("d", width, DimRole::Parallel)];
    let taken = || vec![Axis::plain(0, count), Axis::plain(1, width)];
    let operands = vec![
        operand("index", index, OperandRole::Input, Side::Vector, vec![Axis::plain(0, count)]),
        operand("table", element, OperandRole::Input, Side::Vector, taken()),
        operand("out", element, OperandRole::Output, Side::Vector, taken()),
    ];
    Ok(Operator {
        computes: element,
        accumulates: element,
        ..plain(fields, OperatorKind::Gather, dims, operands, Unit::Vector)
    })
}

fn transpose(fields: &Fields) -> Result<Operator, SpecError> {
    let shape = shape(fields, "transpose shape=1024x4096 perm=1,0 type=f16")?;
    let rank = shape.len();
    let perm = fields.list("perm")?.unwrap_or_else(|| (0..rank as u64).rev().collect());
    let mut seen = perm.clone();
    seen.sort_unstable();
    if let (true, Some(field)) = (seen != (0..rank as u64).collect::<Vec<_>>(), fields.get("perm")) {
        return Err(fields.wrong(field, format!("expected each of 0 to {} once", rank - 1)));
    }
    let element = fields.element("type", ElementType::F16)?;
    let dims: Vec<Dim> =
        shape.iter().enumerate().map(|(at, extent)| dim(&format!("i{at}"), *extent, DimRole::Parallel)).collect();
    let from = (0..rank).map(|at| Axis::plain(at, shape[at])).collect();
    let to = perm.iter().map(|at| Axis::plain(*at as usize, shape[*at as usize])).collect();
    let operands = vec![
        operand("in", element, OperandRole::Input, Side::Vector, from),
        operand("out", element, OperandRole::Output, Side::Vector, to),
    ];
    let operator = plain(fields, OperatorKind::Transpose, dims, operands, Unit::Vector);
    Ok(Operator { vector_per_output: 1, accumulates: element, ..operator })
}
