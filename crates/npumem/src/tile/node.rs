//! An operator from a node of a model: its shapes, types and attributes as the keys of a spec.

use npumem_ir::graph::{Attribute, Graph, Shape};
use npumem_ir::{ElementType, OperatorId, TensorId};
use npumem_planner::tiling::{Operator, spec};

/// What a node is to the tiler.
#[derive(Clone, Debug)]
pub enum Node {
    /// An operator with a schedule.
    Tiled(Box<Operator>),
    /// It moves nothing, or only bytes: a reshape, a slice.
    Moves,
    /// Not known, or a shape is open; the text says which.
    Unknown(String),
}

struct View<'a> {
    graph: &'a Graph,
    node: &'a npumem_ir::Operator,
}

type Pairs = Vec<(String, String)>;

impl View<'_> {
    fn tensor(&self, id: Option<TensorId>) -> Option<(Vec<u64>, ElementType)> {
        let tensor = self.graph.tensors.get(id?.index())?;
        let Shape::Ranked(dims) = &tensor.shape else { return None };
        Some((dims.iter().map(npumem_ir::Dim::known).collect::<Option<_>>()?, tensor.element))
    }

    fn input(&self, at: usize) -> Option<(Vec<u64>, ElementType)> {
        self.tensor(self.node.inputs.get(at).copied().flatten())
    }

    fn output(&self) -> Option<(Vec<u64>, ElementType)> {
        self.tensor(self.node.outputs.first().copied().flatten())
    }

    fn has(&self, at: usize) -> bool {
        self.node.inputs.get(at).copied().flatten().is_some()
    }

    fn int(&self, name: &str) -> Option<i64> {
        match self.node.attributes.get(name) {
            Some(Attribute::Int(value)) => Some(*value),
            _ => None,
        }
    }

    fn ints(&self, name: &str) -> Option<Vec<u64>> {
        match self.node.attributes.get(name) {
            Some(Attribute::Ints(list)) => list.iter().map(|value| u64::try_from(*value).ok()).collect(),
            _ => None,
        }
    }

    /// The attribute `axis` as an index of a shape of so many dimensions.
    fn axis(&self, rank: usize, default: i64) -> Option<usize> {
        let axis = self.int("axis").unwrap_or(default);
        let rank = i64::try_from(rank.max(1)).ok()?;
        usize::try_from(if axis < 0 { axis + rank } else { axis })
            .ok()
            .filter(|axis| (*axis as u64) < rank.unsigned_abs())
    }

    fn text(&self, name: &str) -> &str {
        match self.node.attributes.get(name) {
            Some(Attribute::Text(text)) => text,
            _ => "",
        }
    }
}

fn by_x(list: &[u64]) -> String {
    list.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

fn product(dims: &[u64]) -> u64 {
    dims.iter().fold(1, |product, dim| product.saturating_mul(*dim))
}

fn pair(key: &str, value: impl ToString) -> (String, String) {
    (key.to_owned(), value.to_string())
}

/// The operator of a node of a graph.
#[must_use]
pub fn operator(graph: &Graph, id: OperatorId) -> Node {
    let Some(node) = graph.operators.get(id.index()) else { return Node::Unknown("no such node".into()) };
    let view = View { graph, node };
    if moves_only(&node.kind) {
        return Node::Moves;
    }
    let Some((family, pairs)) = pairs(&view) else {
        let open = view.output().is_none() || node.inputs.iter().flatten().any(|id| view.tensor(Some(*id)).is_none());
        let why = if open {
            "a shape is open: bind it with --dim"
        } else {
            "its kind or attributes are not known to the tiler"
        };
        return Node::Unknown(format!("{}: {why}", node.kind));
    };
    match spec::build(&spec::Fields::new(family, pairs)) {
        Ok(mut operator) => {
            operator.name = format!("{} ({}: {})", node.name, node.kind, operator.name);
            Node::Tiled(Box::new(operator))
        }
        Err(error) => Node::Unknown(format!("{}: {error}", node.kind)),
    }
}

fn moves_only(kind: &str) -> bool {
    matches!(
        kind,
        "Reshape"
            | "Squeeze"
            | "Unsqueeze"
            | "Flatten"
            | "Identity"
            | "Dropout"
            | "Shape"
            | "Size"
            | "Constant"
            | "ConstantOfShape"
            | "Concat"
            | "Slice"
            | "Split"
            | "Expand"
            | "Tile"
            | "Pad"
            | "Range"
            | "Cast"
            | "CastLike"
            | "DepthToSpace"
            | "SpaceToDepth"
            | "If"
            | "Loop"
            | "Scan"
            | "NonZero"
            | "Where"
            | "GatherND"
            | "ScatterND"
            | "ScatterElements"
            | "GatherElements"
            | "Trilu"
            | "OneHot"
            | "Resize"
            | "Upsample"
            | "Compress"
            | "EyeLike"
    )
}

fn pairs(view: &View<'_>) -> Option<(&'static str, Pairs)> {
    // Numbers below zero in these mean something else, or nothing.
    let lists = ["pads", "strides", "dilations", "kernel_shape", "output_padding", "perm"];
    if lists.iter().any(|name| view.ints(name).is_none() && view.node.attributes.contains_key(*name)) {
        return None;
    }
    match view.node.kind.as_str() {
        "Conv" | "FusedConv" | "ConvTranspose" => conv(view),
        "MatMul" | "Gemm" | "FusedMatMul" | "FusedGemm" => matmul(view),
        "MaxPool" | "AveragePool" | "GlobalAveragePool" | "GlobalMaxPool" => pool(view),
        "Softmax" | "LogSoftmax" => {
            let (shape, element) = view.input(0)?;
            // Rows are along the last axis; another one would be another operator.
            let last = view.axis(shape.len(), -1)? + 1 == shape.len().max(1);
            last.then_some(("softmax", vec![pair("shape", by_x(&capped(&shape))), pair("a", element.name())]))
        }
        "LayerNormalization" | "SkipLayerNormalization" => norm(view, "layernorm"),
        "RMSNormalization" | "SimplifiedLayerNormalization" | "SkipSimplifiedLayerNormalization" => {
            norm(view, "rmsnorm")
        }
        "Transpose" => {
            let (shape, element) = view.input(0)?;
            let mut pairs = vec![pair("shape", by_x(&shape)), pair("type", element.name())];
            if let Some(perm) = view.ints("perm") {
                pairs.push(pair("perm", perm.iter().map(u64::to_string).collect::<Vec<_>>().join(",")));
            }
            (shape.len() <= 8).then_some(("transpose", pairs))
        }
        "Gather" => {
            let ((table, element), (index, index_type)) = (view.input(0)?, view.input(1)?);
            let axis = view.int("axis").unwrap_or(0);
            (axis == 0 && !table.is_empty()).then(|| {
                let pairs = vec![
                    pair("rows", table[0]),
                    pair("count", product(&index).max(1)),
                    pair("d", product(&table[1..])),
                    pair("table", element.name()),
                    pair("index", index_type.name()),
                ];
                ("gather", pairs)
            })
        }
        "BatchNormalization" => {
            let (shape, element) = view.input(0)?;
            let mut channels = vec![1; shape.len()];
            *channels.get_mut(1)? = *shape.get(1)?;
            let shape_of = by_x(&capped(&shape));
            (shape.len() <= 8).then(|| {
                let channels = by_x(&channels);
                let pairs = vec![
                    pair("shape", shape_of),
                    pair("a", element.name()),
                    pair("b-shape", &channels),
                    pair("c-shape", &channels),
                    pair("op", "mul,add"),
                ];
                ("elementwise", pairs)
            })
        }
        kind if kind.starts_with("Reduce") => reduce(view),
        kind => elementwise(view, kind),
    }
}

/// More than eight dimensions as eight: the outer ones together.
fn capped(shape: &[u64]) -> Vec<u64> {
    if shape.is_empty() {
        return vec![1];
    }
    if shape.len() <= 8 {
        return shape.to_vec();
    }
    let cut = shape.len() - 7;
    [&[product(&shape[..cut])], &shape[cut..]].concat()
}

fn window(view: &View<'_>, size: &[u64], kernel: &[u64], pairs: &mut Pairs) -> Option<()> {
    let rank = size.len();
    let strides = view.ints("strides").unwrap_or_else(|| vec![1; rank]);
    let dilations = view.ints("dilations").unwrap_or_else(|| vec![1; rank]);
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    match view.text("auto_pad") {
        same @ ("SAME_UPPER" | "SAME_LOWER") => {
            for at in 0..rank {
                let out = size[at].div_ceil(strides[at]);
                let all = ((out - 1) * strides[at] + dilations[at] * (kernel[at] - 1) + 1).saturating_sub(size[at]);
                let half = all / 2;
                (before[at], after[at]) = if same == "SAME_UPPER" { (half, all - half) } else { (all - half, half) };
            }
        }
        _ => {
            if let Some(pads) = view.ints("pads").filter(|pads| pads.len() == 2 * rank) {
                before.copy_from_slice(&pads[..rank]);
                after.copy_from_slice(&pads[rank..]);
            }
        }
    }
    pairs.extend([
        pair("size", by_x(size)),
        pair("kernel", by_x(kernel)),
        pair("stride", by_x(&strides)),
        pair("dilation", by_x(&dilations)),
        pair("pad", by_x(&before)),
        pair("pad-end", by_x(&after)),
    ]);
    Some(())
}

fn conv(view: &View<'_>) -> Option<(&'static str, Pairs)> {
    let ((image, element), (weight, weight_type), (_, out)) = (view.input(0)?, view.input(1)?, view.output()?);
    let [batch, channels, size @ ..] = image.as_slice() else { return None };
    let kernel = weight.get(2..)?;
    if size.is_empty() || size.len() != kernel.len() || size.len() > 3 {
        return None;
    }
    let groups = u64::try_from(view.int("group").unwrap_or(1)).ok()?;
    let transposed = view.node.kind == "ConvTranspose";
    if transposed && view.node.attributes.contains_key("output_shape") {
        // It overrides the padding.
        return None;
    }
    let filters = if transposed { weight.get(1)?.checked_mul(groups)? } else { *weight.first()? };
    let mut pairs = vec![
        pair("n", batch),
        pair("c", channels),
        pair("k", filters),
        pair("groups", groups),
        pair("in", element.name()),
        pair("weight", weight_type.name()),
        pair("out", out.name()),
    ];
    if transposed {
        pairs.push(pair("transposed", true));
        if let Some(extra) = view.ints("output_padding") {
            pairs.push(pair("output-pad", by_x(&extra)));
        }
    }
    if view.has(2) {
        pairs.push(pair("bias", out.name()));
    }
    window(view, size, kernel, &mut pairs)?;
    Some(("conv", pairs))
}

fn matmul(view: &View<'_>) -> Option<(&'static str, Pairs)> {
    let ((a, a_type), (b, b_type), (out, c_type)) = (view.input(0)?, view.input(1)?, view.output()?);
    let gemm = view.node.kind.contains("Gemm");
    let turned = |name: &str| view.int(name) == Some(1);
    let (a_turned, b_turned) = (turned("transA"), turned("transB"));
    let last = |shape: &[u64], from_end: usize| shape.len().checked_sub(from_end).map(|at| shape[at]);
    let k = if a.len() == 1 { a[0] } else { last(&a, if a_turned { 2 } else { 1 })? };
    let n = if b.len() == 1 { 1 } else { last(&b, if b_turned { 2 } else { 1 })? };
    let k_of_b = if b.len() == 1 { b[0] } else { last(&b, if b_turned { 1 } else { 2 })? };
    if k != k_of_b {
        return None;
    }
    let batch_b = product(&b[..b.len().saturating_sub(2)]);
    let rows = product(&out).checked_div(n.max(1))?;
    let mut pairs = Vec::new();
    if batch_b > 1 {
        let batch = product(&out[..out.len().saturating_sub(2)]);
        pairs.push(pair("batch", batch.max(1)));
        pairs.push(pair("m", rows.checked_div(batch.max(1))?));
    } else {
        // The same right side for all: its batch is more rows.
        pairs.push(pair("m", rows));
    }
    pairs.extend([
        pair("n", n),
        pair("k", k),
        pair("a", a_type.name()),
        pair("b", b_type.name()),
        pair("c", c_type.name()),
    ]);
    let turn = match (a_turned, b_turned) {
        (true, true) => "ab",
        (true, false) => "a",
        (false, true) => "b",
        _ => "none",
    };
    pairs.push(pair("transpose", turn));
    if gemm && view.has(2) {
        let (added, _) = view.input(2)?;
        match product(&added) {
            // One value for each column, or a matrix of the result's shape.
            count if count == n && added.last() == Some(&n) => pairs.push(pair("bias", c_type.name())),
            count if count == product(&out) => pairs.push(pair("residual", c_type.name())),
            _ => return None,
        }
    }
    Some(("matmul", pairs))
}

fn pool(view: &View<'_>) -> Option<(&'static str, Pairs)> {
    let (image, element) = view.input(0)?;
    let [batch, channels, size @ ..] = image.as_slice() else { return None };
    if size.is_empty() || size.len() > 3 {
        return None;
    }
    let op = if view.node.kind.contains("Max") { "max" } else { "average" };
    let mut pairs = vec![pair("n", batch), pair("c", channels), pair("type", element.name()), pair("op", op)];
    if view.node.kind.starts_with("Global") {
        pairs.extend([pair("size", by_x(size)), pair("global", true)]);
        return Some(("pool", pairs));
    }
    let kernel = view.ints("kernel_shape")?;
    if kernel.len() != size.len() {
        return None;
    }
    if view.int("ceil_mode") == Some(1) {
        pairs.push(pair("ceil", true));
    }
    window(view, size, &kernel, &mut pairs)?;
    Some(("pool", pairs))
}

fn norm(view: &View<'_>, family: &'static str) -> Option<(&'static str, Pairs)> {
    let (shape, element) = view.input(0)?;
    // Rows are all that lies behind the axis.
    let axis = view.axis(shape.len(), -1)?;
    let rows = [&shape[..axis.min(shape.len())], &[product(&shape[axis.min(shape.len())..])]].concat();
    let mut pairs = vec![pair("shape", by_x(&capped(&rows))), pair("a", element.name())];
    if view.node.kind.starts_with("Skip") {
        pairs.push(pair("residual", element.name()));
    }
    Some((family, pairs))
}

fn reduce(view: &View<'_>) -> Option<(&'static str, Pairs)> {
    let (shape, element) = view.input(0)?;
    let rank = i64::try_from(shape.len()).ok()?;
    let axes = match view.node.attributes.get("axes") {
        Some(Attribute::Ints(list)) => list.clone(),
        _ => view.node.constants.get(&1).cloned().unwrap_or_else(|| (0..rank).collect()),
    };
    if shape.is_empty() || shape.len() > 8 || axes.is_empty() {
        return None;
    }
    let axes: Vec<String> = axes.iter().map(|axis| if *axis < 0 { axis + rank } else { *axis }.to_string()).collect();
    let op = match view.node.kind.as_str() {
        "ReduceMax" => "max",
        "ReduceMin" => "min",
        "ReduceMean" => "mean",
        "ReduceProd" => "prod",
        _ => "sum",
    };
    Some((
        "reduce",
        vec![pair("shape", by_x(&shape)), pair("axes", axes.join(",")), pair("op", op), pair("a", element.name())],
    ))
}

fn elementwise(view: &View<'_>, kind: &str) -> Option<(&'static str, Pairs)> {
    let op = match kind {
        "Add" | "Sum" => "add",
        "Sub" => "sub",
        "Mul" => "mul",
        "Div" => "div",
        "Max" => "max",
        "Min" => "min",
        "Relu" | "LeakyRelu" | "PRelu" => "relu",
        "Clip" => "max,min",
        "Neg" => "neg",
        "Abs" => "abs",
        "Exp" | "Log" | "Pow" => "exp",
        "Sqrt" | "Reciprocal" => "sqrt",
        "Sigmoid" | "HardSigmoid" => "sigmoid",
        "HardSwish" | "Silu" | "QuickGelu" => "silu",
        "Tanh" | "Softplus" => "tanh",
        "Gelu" | "FastGelu" | "BiasGelu" | "Erf" => "gelu",
        "QuantizeLinear" | "DequantizeLinear" => "mul,cast",
        _ => return None,
    };
    let (shape, element) = view.output()?;
    let shape = if shape.is_empty() { vec![1] } else { shape };
    if shape.len() > 8 {
        return None;
    }
    let mut pairs = vec![pair("shape", by_x(&shape)), pair("out", element.name()), pair("op", op)];
    let two_sided =
        matches!(kind, "Add" | "Sum" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Pow" | "BiasGelu" | "PRelu");
    let count = if two_sided { view.node.inputs.len() } else { 1 };
    if count > 4 {
        return None;
    }
    for (name, at) in ["a", "b", "c", "d"].iter().zip(0..count) {
        let (own, element) = view.input(at)?;
        pairs.push(pair(name, element.name()));
        if own != shape {
            pairs.push(pair(&format!("{name}-shape"), by_x(if own.is_empty() { &[1] } else { &own })));
        }
    }
    Some(("elementwise", pairs))
}
