//! The text form of a program, both ways: one line a buffer, one line a step, indented by region.
//!
//! ```text
//! npumem-program 1
//! program scale target a3
//! scalar i = counter
//! buffer tile in UB bytes 1024 slots 2 align 32 : f32 shape 16x16
//! external src in gm : f32
//! steps
//! for i = 0 to 8 step 1
//!   tload @mte2 vector never reads src[1024*i; 1024 by 1]:u8 writes tile{i}[0]:f32
//! end
//! ```
//!
//! `docs/formats/program.md` has the grammar. Writing and reading give back an equal program.

mod parse;
mod print;

pub use parse::{TextError, parse};
pub use print::print;

/// The first line of every program file.
pub const MAGIC: &str = "npumem-program 1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::*;
    use crate::{Alignment, ElementType};

    fn everything() -> Program {
        let mut b = ProgramBuilder::new("all of it");
        b.program_mut().target = Some("a3".into());
        let n = b.argument("n", None);
        let m = b.argument("m", Some(-4));
        let grid = b.scalar("g", ScalarKind::Grid(Some(8)));
        let src = b.buffer(Buffer { element: ElementType::F32, ..Buffer::external("0", "gm", None) });
        let tile = b.buffer(Buffer {
            slots: 2,
            alignment: Alignment::new(32).unwrap(),
            element: ElementType::F16,
            shape: vec![16, 32],
            layout: Layout::Fractal { outer_col: true, inner_col: false, bytes: 512 },
            address: Some(64.into()),
            line: 7,
            ..Buffer::tile("tile \"a\"", "vec", 1024)
        });
        let half = b.buffer(Buffer {
            slots: 2,
            alias: Some(Alias { of: tile, delta: 512 }),
            role: Role::Workspace,
            layout: Layout::ColMajor,
            ..Buffer::tile("half", "vec", 512)
        });
        let sel = b.handle("sel");
        let alive = b.variable("alive");
        b.assign(alive, 1);
        let i = b.begin_for("i", 0, Affine::scalar(n).times(2).plus(&(-3).into()), 2);
        let first = b.value(Op::Eq, vec![i.into(), 0.into()]);
        b.begin_if(first);
        b.step(Step::Assign(Assign {
            scalars: vec![(alive, Affine::scalar(m))],
            handles: vec![(sel, Root::Buffer(half), 16.into())],
        }));
        b.otherwise();
        b.end();
        b.step(Step::Loop);
        b.step(Step::Leave(alive.into()));
        let read = Access {
            extents: vec![Extent { count: Affine::scalar(i), stride: -64 }, Extent { count: 16.into(), stride: 2 }],
            shape: vec![Affine::scalar(grid), 16.into()],
            layout: Layout::Fractal { outer_col: false, inner_col: true, bytes: 1024 },
            certain: false,
            ..Access::whole(Root::Buffer(src), ElementType::Bf16).in_slot(Affine::scalar(i).times(-3))
        };
        b.run(Operation {
            core: Core::Cube,
            reads: vec![read, Access::whole(Root::Handle(sel), ElementType::F16)],
            writes: vec![Access::whole(Root::Buffer(tile), ElementType::F16)],
            in_place: InPlace::Elementwise,
            scalars: vec![
                Number::Int(Affine::scalar(i)),
                Number::Real(0.1),
                Number::Real(-1e30),
                Number::Named("eps".into()),
            ],
            attributes: [("rmode".to_owned(), "ROUND, \"up\"".to_owned())].into(),
            known: false,
            line: 20,
            ..Operation::new("tmatmul.acc", "m")
        });
        b.end();
        for sync in [
            Sync::SetFlag { from: "mte2".into(), to: "v".into(), event: i.into() },
            Sync::WaitFlag { from: "mte2".into(), to: "v".into(), event: 3.into() },
            Sync::Barrier(None),
            Sync::Barrier(Some("v".into())),
            Sync::Acquire { engine: "mte2".into(), token: 0.into() },
            Sync::Release { engine: "mte2".into(), token: 0.into() },
            Sync::Post { engine: "fix".into(), flag: 1.into() },
            Sync::Await { engine: "v".into(), flag: 1.into() },
        ] {
            let at = b.sync(sync);
            b.program_mut().sync_lines.insert(at, at.0 + 30);
        }
        b.sync(Sync::Barrier(None));
        b.end();
        b.buffer(Buffer {
            role: Role::Workspace,
            fixed: true,
            address: Some(188_416.into()),
            ..Buffer::tile("own", "vec", 256)
        });
        b.finish().unwrap()
    }

    #[test]
    fn every_construct_comes_back_equal() {
        let program = everything();
        let text = print(&program);
        let back = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(back, program, "\n{text}");
        assert_eq!(print(&back), text);
        let json = serde_json::to_string(&program).unwrap();
        assert_eq!(serde_json::from_str::<Program>(&json).unwrap(), program);
    }

    #[test]
    fn errors_name_line_column_and_what_was_expected() {
        let wrong = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(wrong("nothing"), "line 1, column 1: expected 'npumem-program 1'");
        assert_eq!(
            wrong("npumem-program 1\nprogram p\nbuffer b in UB bytes x : f32\nsteps\n"),
            "line 3, column 22: expected a number, found 'x'"
        );
        assert_eq!(
            wrong("npumem-program 1\nprogram p\nsteps\nadd @v reads q[0]:f32\n"),
            "line 4, column 14: no buffer 'q'"
        );
        assert!(wrong("npumem-program 1\nprogram p\nsteps\nend\n").contains("'end' of nothing"));
        assert!(
            wrong("npumem-program 1\nprogram p\nscalar i = counter\nsteps\nif 99999999999999999999\nend")
                .contains("past 64 bits")
        );
    }

    /// Cuts and single-byte changes of a good text: an error or a program, never a panic.
    #[test]
    fn damaged_text_never_panics() {
        let text = print(&everything());
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let _ = parse(&text[..cut]);
        }
        let bytes = text.as_bytes();
        for at in 0..bytes.len() {
            for byte in *b"0 -[]{}\"&:;,x\n" {
                let mut damaged = bytes.to_vec();
                damaged[at] = byte;
                if let Ok(damaged) = std::str::from_utf8(&damaged)
                    && let Ok(program) = parse(damaged)
                {
                    assert_eq!(parse(&print(&program)).as_ref(), Ok(&program), "{damaged}");
                }
            }
        }
    }
}
