//! What each `pto` operation does to memory: its engine, its scratch operands, and whether it may work in place.

use npumem_ir::program::InPlace;

/// One operation of the dialect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// How its engine is found.
    pub engine: Engine,
    /// Input operands (by number among `ins`) that are scratch: written, and read only after that.
    pub scratch: Scratch,
    /// Whether its result may lie on its inputs.
    pub in_place: InPlace,
}

/// How the engine is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Always this one.
    Fixed(&'static str),
    /// From the spaces it moves between.
    ByMove,
}

/// Which inputs are scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scratch {
    /// None.
    None,
    /// The last input, when there are at least so many.
    LastFrom(usize),
}

/// The operation of that name without `pto.`, when it is known.
pub(super) fn known(name: &str) -> Option<Known> {
    use InPlace::{Always, Elementwise, Never};
    let make = |engine, scratch, in_place| Some(Known { engine, scratch, in_place });
    let vector = Engine::Fixed("v");
    match name {
        "tload" | "tprefetch" | "load" | "mgather" => make(Engine::Fixed("mte2"), Scratch::None, Never),
        "tstore" | "tstore_fp" | "mscatter" => make(Engine::ByMove, Scratch::None, Never),
        "tmov" | "tmov_fp" | "textract" | "textract_fp" | "tinsert" | "tinsert_fp" => {
            make(Engine::ByMove, Scratch::None, Never)
        }
        "tmatmul" | "tmatmul.acc" | "tmatmul.bias" | "tmatmul.mx" | "tmatmul.mx.acc" | "tmatmul.mx.bias" | "tgemv"
        | "tgemv.acc" | "tgemv.bias" | "tgemv.mx" | "tgemv.mx.acc" | "tgemv.mx.bias" => {
            make(Engine::Fixed("m"), Scratch::None, Always)
        }
        "tadd" | "tsub" | "tmul" | "tdiv" | "tmax" | "tmin" | "tand" | "tor" | "tshl" | "tshr" | "taddc" | "tsubc"
        | "tadds" | "tsubs" | "tmuls" | "tmaxs" | "tmins" | "tands" | "tors" | "tshls" | "tshrs" | "taddsc"
        | "tsubsc" | "texp" | "tlog" | "tsqrt" | "trecip" | "tneg" | "tabs" | "trelu" | "tlrelu" | "tnot"
        | "texpands" | "tcmp" | "tcmps" | "taxpy" => make(vector, Scratch::None, Elementwise),
        "trsqrt" | "tcvt" => make(vector, Scratch::LastFrom(2), Elementwise),
        "tsel" | "tsels" => make(vector, Scratch::LastFrom(4), Elementwise),
        // Composed of several passes: an operand is read again after the result was written once.
        "txor" | "txors" | "tprelu" | "trem" | "trems" | "tpow" | "tpows" => make(vector, Scratch::LastFrom(3), Never),
        "tfmod" | "tfmods" | "tdivs" => make(vector, Scratch::None, Never),
        "trowexpandmul" | "trowexpanddiv" | "trowexpandsub" | "trowexpandadd" | "trowexpandmax" | "trowexpandmin"
        | "trowexpandexpdif" | "tcolexpandmul" | "tcolexpanddiv" | "tcolexpandsub" | "tcolexpandadd"
        | "tcolexpandmax" | "tcolexpandmin" | "tcolexpandexpdif" => make(vector, Scratch::LastFrom(3), Elementwise),
        "trowsum" | "trowmax" | "trowmin" | "trowprod" | "trowargmax" | "trowargmin" | "tcolargmax" | "tcolargmin"
        | "tcolsum" | "tcolprod" | "tcolmax" | "tcolmin" | "ttrans" => make(vector, Scratch::LastFrom(2), Never),
        "tsort32" | "tmrgsort" | "tgather" => make(vector, Scratch::LastFrom(3), Never),
        "trowexpand" | "tcolexpand" | "tgatherb" | "tscatter" | "tconcat" | "tpartadd" | "tpartmul" | "tpartmax"
        | "tpartmin" | "tquant" | "tdequant" | "thistogram" | "tpack" | "trandom" | "tfillpad" | "tfillpad_inplace"
        | "tfillpad_expand" => make(vector, Scratch::None, Never),
        "tget_scale_addr" | "tci" | "ttri" | "tprint" | "tgetval" | "tsetval" | "load_scalar" | "store_scalar"
        | "print" => make(Engine::Fixed("s"), Scratch::None, Never),
        _ => None,
    }
}

/// The engine that moves between two spaces.
pub(super) fn mover(from: &str, to: &str) -> &'static str {
    match (from, to) {
        ("acc", _) => "fix",
        ("mat", "left" | "right" | "bias" | "scaling") => "mte1",
        ("gm", _) => "mte2",
        ("vec", "vec") => "v",
        ("vec" | "mat", "gm" | "mat") => "mte3",
        _ => "v",
    }
}

/// The engine of a stage name of `record_event` and of the A5 buffer tokens.
pub(super) fn stage_engine(name: &str) -> Option<&'static str> {
    Some(match name {
        "TLOAD" => "mte2",
        "TSTORE_ACC" => "fix",
        "TSTORE_VEC" | "TMOV_V2M" => "mte3",
        "TMOV_M2L" | "TMOV_M2B" | "TMOV_M2S" | "TEXTRACT_M2LR" => "mte1",
        "TMOV_M2V" | "TMOV_V" | "TVEC" | "TVECWAIT_EVENT" => "v",
        "TMATMUL" => "m",
        _ => return None,
    })
}

/// The engine of `PIPE_MTE2` and its kind; `None` for all of them.
pub(super) fn pipe_engine(name: &str) -> Option<&'static str> {
    Some(match name {
        "PIPE_MTE1" => "mte1",
        "PIPE_MTE2" | "PIPE_MTE4" => "mte2",
        "PIPE_MTE3" | "PIPE_MTE5" => "mte3",
        "PIPE_M" => "m",
        "PIPE_V" | "PIPE_V2" => "v",
        "PIPE_S" => "s",
        "PIPE_FIX" => "fix",
        _ => return None,
    })
}
