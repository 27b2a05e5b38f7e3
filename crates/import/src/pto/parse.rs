//! From words to operations: what MLIR's custom and generic forms have in common.
//!
//! An operation is its results, its name, and a list of [`Clause`]s; a region is a run of items between
//! [`Item::Open`] and [`Item::Close`] in one flat list, so nothing here recurses on the input.

use super::PtoError;
use super::lex::{Kind, Token, lex};

/// The deepest nesting of regions, brackets and types.
const MAX_NESTING: usize = 256;

/// One item of the flat file.
#[derive(Debug)]
pub(super) enum Item<'a> {
    /// An operation; the region that follows it, if any, is its own.
    Op(RawOp<'a>),
    /// `{` of a region.
    Open,
    /// `else`, `do`: the region just closed continues with another.
    Next(&'a str),
    /// `^bb0(%a: index)`.
    Label(Vec<Typed<'a>>),
    /// `}` of a region, at this byte.
    Close,
    /// `!name = type` at the top.
    Alias { name: &'a str, ty: &'a str },
}

/// An operation as written.
#[derive(Debug)]
pub(super) struct RawOp<'a> {
    /// `%a`, `%b:2` as (`%b`, 2).
    pub results: Vec<(&'a str, usize)>,
    pub name: &'a str,
    pub clauses: Vec<Clause<'a>>,
    /// First byte, and the byte past the last.
    pub start: usize,
    /// The byte just past the name.
    pub name_end: usize,
    pub end: usize,
}

/// `%a : type`.
#[derive(Clone, Debug)]
pub(super) struct Typed<'a> {
    pub value: &'a str,
    pub at: usize,
    pub ty: Option<&'a str>,
}

/// A part of an operation.
#[derive(Debug)]
pub(super) enum Clause<'a> {
    /// A bare `%value`.
    Value(&'a str, usize),
    /// A keyword.
    Word(&'a str),
    /// A number, text, `@symbol`, `#attribute` or `<...>`.
    Literal(&'a str, usize),
    /// `( ... )` or `[ ... ]`, after its keyword if it has one.
    Group { keyword: Option<&'a str>, items: Vec<Entry<'a>>, types: Vec<&'a str>, attributes: Attributes<'a> },
    /// `{key = value}`.
    Attributes(Attributes<'a>),
    /// `keyword = value`.
    Assign { keyword: &'a str, value: &'a str, at: usize, end: usize },
    /// `: type, type`.
    Types(Vec<&'a str>),
    /// `-> type, type`.
    Arrow(Vec<&'a str>),
}

/// Key and value of an attribute list; a bare key has an empty value.
pub(super) type Attributes<'a> = Vec<(&'a str, &'a str)>;

/// One entry of a group.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    /// `key = ` before it.
    pub key: Option<&'a str>,
    /// `%value`, number, keyword or attribute.
    pub text: &'a str,
    pub at: usize,
    /// `: type` right after it.
    pub ty: Option<&'a str>,
    /// `{...}` right after it.
    pub attributes: Attributes<'a>,
}

impl<'a> RawOp<'a> {
    /// The group with that keyword.
    pub fn group(&self, name: &str) -> Option<(&[Entry<'a>], &[&'a str])> {
        self.clauses.iter().find_map(|clause| match clause {
            Clause::Group { keyword, items, types, .. } if keyword.unwrap_or("") == name => {
                Some((items.as_slice(), types.as_slice()))
            }
            _ => None,
        })
    }

    /// Bare values, in order.
    pub fn values(&self) -> Vec<(&'a str, usize)> {
        let values = self.clauses.iter().filter_map(|clause| match clause {
            Clause::Value(name, at) => Some((*name, *at)),
            _ => None,
        });
        values.collect()
    }

    /// Types after `:`.
    pub fn types(&self) -> &[&'a str] {
        let found = self.clauses.iter().rev().find_map(|clause| match clause {
            Clause::Types(types) => Some(types.as_slice()),
            _ => None,
        });
        found.unwrap_or(&[])
    }

    /// Types after `->`.
    pub fn arrow(&self) -> &[&'a str] {
        let found = self.clauses.iter().rev().find_map(|clause| match clause {
            Clause::Arrow(types) => Some(types.as_slice()),
            _ => None,
        });
        found.unwrap_or(&[])
    }

    /// All attributes, wherever they stand.
    pub fn attributes(&self) -> Vec<(&'a str, &'a str)> {
        let mut all = Vec::new();
        for clause in &self.clauses {
            match clause {
                Clause::Attributes(list) => all.extend(list.iter().copied()),
                Clause::Group { items, attributes, .. } => {
                    all.extend(attributes.iter().copied());
                    all.extend(items.iter().flat_map(|item| item.attributes.iter().copied()));
                }
                _ => {}
            }
        }
        all
    }

    /// The value of `keyword = value`, with its place.
    pub fn assigned(&self, name: &str) -> Option<(&'a str, usize, usize)> {
        self.clauses.iter().find_map(|clause| match clause {
            Clause::Assign { keyword, value, at, end } if *keyword == name => Some((*value, *at, *end)),
            _ => None,
        })
    }
}

/// Operations that carry a region.
fn opens_region(name: &str) -> bool {
    matches!(
        name,
        "module"
            | "builtin.module"
            | "func.func"
            | "func"
            | "scf.for"
            | "scf.if"
            | "scf.while"
            | "scf.execute_region"
            | "scf.parallel"
            | "scf.forall"
            | "affine.for"
            | "affine.if"
            | "scf.index_switch"
    ) || name.starts_with("pto.section")
}

/// Reads a file into items.
pub(super) fn parse(source: &str) -> Result<Vec<Item<'_>>, PtoError> {
    let mut parser = Parser { source, tokens: lex(source)?, at: 0, items: Vec::new() };
    let mut depth = 0_usize;
    // Whether the item just closed may be continued by `else` or `do`.
    loop {
        let token = parser.peek();
        match token.kind {
            Kind::End if depth == 0 => return Ok(parser.items),
            Kind::End => return Err(parser.error("expected '}' before the end of the file")),
            Kind::Punct(b'}') => {
                if depth == 0 {
                    return Err(parser.error("'}' closes nothing"));
                }
                depth -= 1;
                parser.at += 1;
                parser.items.push(Item::Close);
                if parser.peek().kind == Kind::Word && matches!(parser.text(parser.peek()), "else" | "do") {
                    let word = parser.text(parser.peek());
                    parser.at += 1;
                    parser.items.push(Item::Next(word));
                    parser.expect(b'{')?;
                    depth += 1;
                    parser.items.push(Item::Open);
                }
            }
            Kind::Label => {
                parser.at += 1;
                let arguments = if parser.peek().kind == Kind::Punct(b'(') { parser.arguments()? } else { Vec::new() };
                parser.expect(b':')?;
                parser.items.push(Item::Label(arguments));
            }
            Kind::Attribute | Kind::Type if depth == 0 => parser.alias()?,
            _ => {
                let op = parser.operation()?;
                let region = opens_region(op.name);
                parser.items.push(Item::Op(op));
                if region && parser.peek().kind == Kind::Punct(b'{') {
                    if depth == MAX_NESTING {
                        return Err(parser.error(format!("regions nest deeper than {MAX_NESTING}")));
                    }
                    parser.at += 1;
                    depth += 1;
                    parser.items.push(Item::Open);
                }
            }
        }
    }
}

struct Parser<'a> {
    source: &'a str,
    tokens: Vec<Token>,
    at: usize,
    items: Vec<Item<'a>>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn ahead(&self, by: usize) -> Token {
        self.tokens[(self.at + by).min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn text(&self, token: Token) -> &'a str {
        &self.source[token.start..token.end]
    }

    fn is(&self, punct: u8) -> bool {
        let token = self.peek();
        token.kind == Kind::Punct(punct) && token.end - token.start == 1
    }

    fn is_arrow(&self) -> bool {
        self.text(self.peek()) == "->"
    }

    fn error(&self, problem: impl Into<String>) -> PtoError {
        PtoError::at(self.source, self.peek().start, problem)
    }

    fn found(&self) -> String {
        match self.peek().kind {
            Kind::End => "the end of the file".into(),
            _ => format!("'{}'", self.text(self.peek())),
        }
    }

    fn expect(&mut self, punct: u8) -> Result<Token, PtoError> {
        if self.is(punct) {
            return Ok(self.next());
        }
        Err(self.error(format!("expected '{}', found {}", punct as char, self.found())))
    }

    fn eat(&mut self, punct: u8) -> bool {
        let found = self.is(punct);
        self.at += usize::from(found);
        found
    }

    /// `!alias = type` and `#map = ...` at the top; no operation of the dialect needs the latter, so it is read over.
    fn alias(&mut self) -> Result<(), PtoError> {
        let token = self.next();
        self.expect(b'=')?;
        if token.kind == Kind::Type {
            let ty = self.ty()?;
            self.items.push(Item::Alias { name: self.text(token), ty });
        } else {
            self.value_text()?;
        }
        Ok(())
    }

    /// Whether results `%a, %b:2 =` begin here.
    fn begins_results(&self) -> bool {
        let mut by = 0;
        loop {
            if self.ahead(by).kind != Kind::Value {
                return false;
            }
            by += 1;
            if self.ahead(by).kind == Kind::Punct(b':') && self.ahead(by + 1).kind == Kind::Number {
                by += 2;
            }
            match self.ahead(by).kind {
                Kind::Punct(b'=') => return matches!(self.ahead(by + 1).kind, Kind::Word | Kind::Text),
                Kind::Punct(b',') => by += 1,
                _ => return false,
            }
        }
    }

    /// Whether the next word starts another operation.
    fn begins_operation(&self) -> bool {
        let token = self.peek();
        match token.kind {
            Kind::Word => {
                let word = self.text(token);
                word.contains('.') || matches!(word, "return" | "call" | "module" | "func")
            }
            Kind::Text => self.ahead(1).kind == Kind::Punct(b'('),
            Kind::Value => self.begins_results(),
            Kind::Label | Kind::End | Kind::Punct(b'}') => true,
            _ => false,
        }
    }

    fn operation(&mut self) -> Result<RawOp<'a>, PtoError> {
        let start = self.peek().start;
        let mut results = Vec::new();
        if self.begins_results() {
            loop {
                let name = self.next();
                let mut count = 1;
                if self.eat(b':') {
                    let token = self.next();
                    count = self.text(token).parse::<usize>().ok().filter(|count| *count <= 1024).ok_or_else(|| {
                        PtoError::at(self.source, token.start, "expected a number of results, at most 1024")
                    })?;
                }
                results.push((self.text(name), count));
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b'=')?;
        }
        let token = self.next();
        let (name, generic) = match token.kind {
            Kind::Word => (self.text(token), false),
            Kind::Text => (self.text(token).trim_matches('"'), true),
            _ => {
                self.at -= 1;
                return Err(self.error(format!("expected an operation, found {}", self.found())));
            }
        };
        if !generic && !name.contains('.') && !matches!(name, "return" | "call" | "module" | "func") {
            self.at -= 1;
            return Err(self.error(format!("expected an operation, found {}", self.found())));
        }
        let mut op = RawOp { results, name, clauses: Vec::new(), start, name_end: token.end, end: token.end };
        let region = opens_region(name);
        match name {
            "scf.for" => self.for_header(&mut op)?,
            "func.func" | "func" => self.function_header(&mut op)?,
            _ => {}
        }
        while !(self.begins_operation() || region && self.is(b'{')) {
            let clause = self.clause(region)?;
            op.clauses.push(clause);
        }
        op.end = self.tokens[self.at.saturating_sub(1)].end;
        Ok(op)
    }

    /// `%i = %lo to %hi step %s [iter_args(%a = %b)]`.
    fn for_header(&mut self, op: &mut RawOp<'a>) -> Result<(), PtoError> {
        for expected in ["", "=", "to", "step"] {
            if !expected.is_empty() {
                if self.text(self.peek()) != expected {
                    return Err(self.error(format!("expected '{expected}', found {}", self.found())));
                }
                self.at += 1;
            }
            let token = self.peek();
            if token.kind != Kind::Value {
                return Err(self.error(format!("expected a value such as %i, found {}", self.found())));
            }
            self.at += 1;
            op.clauses.push(Clause::Value(self.text(token), token.start));
        }
        Ok(())
    }

    /// `[private] @name(%a: type) [-> type] [attributes {..}]`.
    fn function_header(&mut self, op: &mut RawOp<'a>) -> Result<(), PtoError> {
        while self.peek().kind == Kind::Word && matches!(self.text(self.peek()), "private" | "public" | "nested") {
            let token = self.next();
            op.clauses.push(Clause::Word(self.text(token)));
        }
        let token = self.peek();
        if token.kind != Kind::Symbol {
            return Err(self.error(format!("expected the function's @name, found {}", self.found())));
        }
        self.at += 1;
        op.clauses.push(Clause::Literal(self.text(token), token.start));
        let arguments = self.arguments()?;
        let items = arguments.into_iter().map(|a| Entry {
            key: None,
            text: a.value,
            at: a.at,
            ty: a.ty,
            attributes: Vec::new(),
        });
        op.clauses.push(Clause::Group {
            keyword: None,
            items: items.collect(),
            types: Vec::new(),
            attributes: Vec::new(),
        });
        Ok(())
    }

    /// `(%a: type, %b: type)`; a declaration may leave the names out.
    fn arguments(&mut self) -> Result<Vec<Typed<'a>>, PtoError> {
        self.expect(b'(')?;
        let mut list = Vec::new();
        while !self.eat(b')') {
            if !list.is_empty() {
                self.expect(b',')?;
            }
            let token = self.peek();
            if token.kind == Kind::Value {
                self.at += 1;
                self.expect(b':')?;
                let ty = self.ty()?;
                list.push(Typed { value: self.text(token), at: token.start, ty: Some(ty) });
            } else {
                let ty = self.ty()?;
                list.push(Typed { value: "", at: token.start, ty: Some(ty) });
            }
            if self.is(b'{') {
                self.attribute_list()?;
            }
        }
        Ok(list)
    }

    fn clause(&mut self, region: bool) -> Result<Clause<'a>, PtoError> {
        let token = self.peek();
        match token.kind {
            Kind::Value => {
                self.at += 1;
                self.eat(b',');
                Ok(Clause::Value(self.text(token), token.start))
            }
            Kind::Word => {
                let word = self.text(token);
                self.at += 1;
                if self.eat(b'=') {
                    if self.is(b'[') || self.is(b'(') {
                        let group = self.group(Some(word));
                        self.eat(b',');
                        return group;
                    }
                    let value = self.peek();
                    let text = self.value_text()?;
                    self.eat(b',');
                    return Ok(Clause::Assign {
                        keyword: word,
                        value: text,
                        at: value.start,
                        end: value.start + text.len(),
                    });
                }
                if self.is(b':') && self.ahead(1).kind == Kind::Punct(b'[') {
                    self.at += 1;
                }
                if self.is(b'(') || self.is(b'[') {
                    let group = self.group(Some(word));
                    self.eat(b',');
                    return group;
                }
                if region && word == "attributes" && self.is(b'{') {
                    return self.attribute_list().map(Clause::Attributes);
                }
                self.eat(b',');
                Ok(Clause::Word(word))
            }
            Kind::Punct(b'(' | b'[') => {
                let group = self.group(None);
                self.eat(b',');
                group
            }
            Kind::Punct(b'{') => {
                let list = self.attribute_list()?;
                Ok(Clause::Attributes(list))
            }
            Kind::Punct(b':') => {
                self.at += 1;
                self.type_list().map(Clause::Types)
            }
            Kind::Punct(b'-') if self.is_arrow() => {
                self.at += 1;
                self.type_list().map(Clause::Arrow)
            }
            Kind::Punct(b'<') | Kind::Attribute | Kind::Number | Kind::Text | Kind::Symbol => {
                let text = self.value_text()?;
                self.eat(b',');
                Ok(Clause::Literal(text, token.start))
            }
            _ => Err(self.error(format!("did not expect {} here", self.found()))),
        }
    }

    /// `( entry, entry [{..}] [: type, type] )`, or with brackets.
    fn group(&mut self, keyword: Option<&'a str>) -> Result<Clause<'a>, PtoError> {
        let close = if self.is(b'(') { b')' } else { b']' };
        let open = self.next();
        let (mut items, mut types, mut attributes) = (Vec::<Entry<'a>>::new(), Vec::new(), Vec::new());
        let mut typed_at = None;
        loop {
            if self.eat(close) {
                break;
            }
            if self.is(b'{') {
                let list = self.attribute_list()?;
                match items.last_mut() {
                    Some(item) => item.attributes.extend(list),
                    None => attributes.extend(list),
                }
                self.eat(b',');
                continue;
            }
            if self.is(b':') {
                let at = self.next().start;
                typed_at = Some(at);
                types = self.type_list()?;
                self.expect(close)?;
                break;
            }
            let mut token = self.peek();
            let mut key = None;
            if matches!(token.kind, Kind::Word | Kind::Value) && self.ahead(1).kind == Kind::Punct(b'=') {
                key = Some(self.text(token));
                self.at += 2;
                token = self.peek();
            }
            let text = if matches!(token.kind, Kind::Type) || self.text(token).starts_with("memref") {
                self.ty()?
            } else {
                self.value_text()?
            };
            let mut entry = Entry { key, text, at: token.start, ty: None, attributes: Vec::new() };
            if key.is_some() && self.eat(b':') {
                entry.ty = Some(self.ty()?);
            }
            items.push(entry);
            if self.eat(b',') {
                continue;
            }
            // Types follow the list, or each entry: `%a : t, %b : t`.
            let started = items.iter().any(|item| item.ty.is_some() && item.key.is_none());
            if self.is(b':') && close == b')' && (started || self.types_per_entry()) {
                self.at += 1;
                let ty = self.ty()?;
                types.push(ty);
                if let Some(last) = items.last_mut() {
                    last.ty = Some(ty);
                }
                typed_at = typed_at.or(Some(token.start));
                self.eat(b',');
                continue;
            }
            if !(self.is(close) || self.is(b':') || self.is(b'{')) {
                return Err(self.error(format!("expected ',' or '{}', found {}", close as char, self.found())));
            }
        }
        let operands = items.iter().filter(|item| item.text.starts_with('%')).count();
        if let Some(at) = typed_at
            && types.len() != operands
        {
            let problem = format!("{operands} operands but {} types", types.len());
            return Err(PtoError::at(self.source, at, problem));
        }
        if matches!(keyword, Some("ins" | "outs")) && typed_at.is_none() {
            let problem = format!("expected ': type' after the operands of '{}'", keyword.unwrap_or(""));
            return Err(PtoError::at(self.source, open.start, problem));
        }
        Ok(Clause::Group { keyword, items, types, attributes })
    }

    /// Whether `: type` belongs to one entry: another `%value` or `key =` follows the type and a comma.
    fn types_per_entry(&mut self) -> bool {
        let saved = self.at;
        self.at += 1;
        let one = self.ty().is_ok() && self.is(b',');
        let next = self.ahead(1);
        let answer = one && (next.kind == Kind::Value || self.ahead(2).kind == Kind::Punct(b'='));
        self.at = saved;
        answer
    }

    /// `{key = value, flag}`; returns at the token past `}`.
    fn attribute_list(&mut self) -> Result<Attributes<'a>, PtoError> {
        self.expect(b'{')?;
        let mut list = Vec::new();
        loop {
            if self.eat(b'}') {
                return Ok(list);
            }
            let key = self.peek();
            if !matches!(key.kind, Kind::Word | Kind::Text) {
                return Err(self.error(format!("expected an attribute or '}}', found {}", self.found())));
            }
            self.at += 1;
            let mut value = "";
            if self.eat(b'=') {
                value = self.value_text()?;
                if self.eat(b':') {
                    self.ty()?;
                }
            }
            let name = self.text(key).trim_matches('"');
            if list.iter().any(|(other, _)| *other == name) {
                return Err(PtoError::at(self.source, key.start, format!("'{name}' is given twice")));
            }
            list.push((name, value));
            if !self.eat(b',') && !self.is(b'}') {
                return Err(self.error(format!("expected ',' or '}}', found {}", self.found())));
            }
        }
    }

    /// The text of one value: a word, number, text, symbol, `#attr<...>`, `<...>`, `[...]`, `%value`.
    fn value_text(&mut self) -> Result<&'a str, PtoError> {
        let token = self.peek();
        match token.kind {
            Kind::Punct(b'<' | b'[' | b'{' | b'(') => self.balanced(),
            Kind::Attribute | Kind::Word | Kind::Type => {
                self.at += 1;
                if self.is(b'<') {
                    self.balanced()?;
                    let end = self.tokens[self.at - 1].end;
                    return Ok(&self.source[token.start..end]);
                }
                Ok(self.text(token))
            }
            Kind::Number | Kind::Text | Kind::Symbol | Kind::Value => {
                self.at += 1;
                Ok(self.text(token))
            }
            _ => Err(self.error(format!("expected a value, found {}", self.found()))),
        }
    }

    /// From an opening bracket to the one that closes it.
    fn balanced(&mut self) -> Result<&'a str, PtoError> {
        let start = self.peek().start;
        let mut open: Vec<u8> = Vec::new();
        loop {
            let token = self.peek();
            match token.kind {
                Kind::Punct(b) if matches!(b, b'<' | b'[' | b'{' | b'(') => {
                    if open.len() == MAX_NESTING {
                        return Err(self.error(format!("brackets nest deeper than {MAX_NESTING}")));
                    }
                    open.push(b);
                }
                Kind::Punct(b) if matches!(b, b'>' | b']' | b'}' | b')') => {
                    let expected = match open.pop() {
                        Some(b'<') => b'>',
                        Some(b'[') => b']',
                        Some(b'{') => b'}',
                        _ => b')',
                    };
                    if b != expected {
                        return Err(self.error(format!("expected '{}', found {}", expected as char, self.found())));
                    }
                }
                Kind::End => return Err(PtoError::at(self.source, start, "this bracket is never closed")),
                _ => {}
            }
            self.at += 1;
            if open.is_empty() {
                return Ok(&self.source[start..token.end]);
            }
        }
    }

    /// `type, type`, or `(type, type)`, or `(types) -> (types)`.
    fn type_list(&mut self) -> Result<Vec<&'a str>, PtoError> {
        let mut list = Vec::new();
        let wrapped = self.is(b'(');
        if wrapped {
            self.at += 1;
            if self.eat(b')') {
                return Ok(list);
            }
        }
        loop {
            list.push(self.ty()?);
            if !self.eat(b',') {
                break;
            }
        }
        if wrapped {
            self.expect(b')')?;
        }
        Ok(list)
    }

    /// One type; `(a) -> b` chains are read in a loop.
    fn ty(&mut self) -> Result<&'a str, PtoError> {
        let start = self.peek().start;
        loop {
            let token = self.peek();
            let mut function = false;
            match token.kind {
                Kind::Type | Kind::Word => {
                    let word = self.text(token);
                    if token.kind == Kind::Word && !is_builtin_type(word) {
                        return Err(self.error(format!("expected a type, found {}", self.found())));
                    }
                    self.at += 1;
                    if self.is(b'<') {
                        self.balanced()?;
                    }
                }
                Kind::Punct(b'<') => {
                    self.balanced()?;
                }
                Kind::Punct(b'(') => {
                    self.balanced()?;
                    function = self.is_arrow();
                }
                _ => return Err(self.error(format!("expected a type, found {}", self.found()))),
            }
            if function {
                self.at += 1;
                continue;
            }
            return Ok(&self.source[start..self.tokens[self.at - 1].end]);
        }
    }
}

/// The builtin types that the dialect meets.
fn is_builtin_type(word: &str) -> bool {
    matches!(word, "index" | "none" | "memref" | "vector" | "tensor" | "tuple" | "complex" | "bf16" | "tf32")
        || is_scalar_type(word)
}

/// `i32`, `ui8`, `si16`, `f16`, `f8E4M3FN`.
fn is_scalar_type(word: &str) -> bool {
    let rest = word
        .strip_prefix("ui")
        .or_else(|| word.strip_prefix("si"))
        .or_else(|| word.strip_prefix('i'))
        .or_else(|| word.strip_prefix("hif"))
        .or_else(|| word.strip_prefix('f'));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}
