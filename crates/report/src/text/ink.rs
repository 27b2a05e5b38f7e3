//! What a piece of text is, and the colour it gets for that.

use anstyle::{AnsiColor, Style};

/// The few roles that text has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ink {
    /// Nothing special.
    #[default]
    Plain,
    /// The title of a section.
    Heading,
    /// Beside the point: units, reasons.
    Dim,
    /// Yes.
    Good,
    /// No.
    Bad,
    /// Look here.
    Warning,
    /// A bar or a chart.
    Bar,
}

impl Ink {
    fn style(self) -> Style {
        match self {
            Ink::Plain => Style::new(),
            Ink::Heading => Style::new().bold(),
            Ink::Dim => Style::new().dimmed(),
            Ink::Good => Style::new().bold().fg_color(Some(AnsiColor::Green.into())),
            Ink::Bad => Style::new().bold().fg_color(Some(AnsiColor::Red.into())),
            Ink::Warning => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
            Ink::Bar => Style::new().fg_color(Some(AnsiColor::Cyan.into())),
        }
    }

    /// The text in its colour, or as it is when colours are off.
    #[must_use]
    pub fn paint(self, text: &str, colour: bool) -> String {
        if !colour || self == Ink::Plain || text.trim().is_empty() {
            return text.to_owned();
        }
        let style = self.style();
        format!("{style}{text}{style:#}")
    }
}
