//! Compiles the tree of a pattern into the instructions that the matcher runs.

use super::class::{CharClass, ClassItem};
use super::parse::{ParsedPattern, PatternNode};
use super::{Direction, Instruction, MAX_INSTRUCTIONS, MAX_NODES, Pattern, PatternError, to_index};

/// Compiles the parsed form of `text`.
///
/// # Errors
/// If the program exceeds a limit.
pub(super) fn compile(text: &str, parsed: ParsedPattern) -> Result<Pattern, PatternError> {
    let ParsedPattern { tree, classes, n_groups, has_back_references } = parsed;
    let mut compiler = PatternCompiler {
        program: Vec::new(),
        n_compiled_nodes: 0,
        n_registers: if has_back_references { 2 * n_groups } else { 0 },
        has_back_references,
        classes,
        char_classes: Vec::new(),
    };
    compiler.compile(&tree, Direction::Forward)?;
    compiler.push(Instruction::Match)?;
    Ok(Pattern {
        text: text.into(),
        program: compiler.program.into(),
        classes: compiler.classes.into(),
        n_registers: compiler.n_registers as usize,
        has_back_references,
    })
}

struct PatternCompiler {
    program: Vec<Instruction>,
    n_compiled_nodes: usize,
    n_registers: u32,
    has_back_references: bool,
    classes: Vec<CharClass>,
    /// Classes of a single character, created once for each character.
    char_classes: Vec<(char, u32)>,
}

impl PatternCompiler {
    fn push(&mut self, instruction: Instruction) -> Result<(), PatternError> {
        if self.program.len() >= MAX_INSTRUCTIONS {
            return Err(PatternError::unsupported(format!(
                "it has more than {MAX_INSTRUCTIONS} instructions"
            )));
        }
        self.program.push(instruction);
        Ok(())
    }

    fn next_index(&self) -> Result<u32, PatternError> {
        to_index(self.program.len())
    }

    /// Reserves an instruction that is filled in once its targets are known; returns its index.
    fn push_placeholder(&mut self) -> Result<usize, PatternError> {
        self.push(Instruction::Match)?;
        Ok(self.program.len() - 1)
    }

    fn compile(&mut self, tree: &PatternNode, direction: Direction) -> Result<(), PatternError> {
        self.n_compiled_nodes += 1;
        if self.n_compiled_nodes > MAX_NODES {
            return Err(PatternError::unsupported(format!("it has more than {MAX_NODES} nodes")));
        }
        match tree {
            PatternNode::Empty => Ok(()),
            PatternNode::Char(character) => self.push(Instruction::Char(*character)),
            PatternNode::Class(class) => self.push(Instruction::Class(*class)),
            PatternNode::Start => self.push(Instruction::Start),
            PatternNode::End => self.push(Instruction::End),
            PatternNode::WordBoundary(is_boundary) => self.push(Instruction::WordBoundary(*is_boundary)),
            PatternNode::BackReference(group) => self.push(Instruction::BackReference(*group)),
            PatternNode::Sequence(nodes) => match direction {
                Direction::Forward => nodes.iter().try_for_each(|node| self.compile(node, direction)),
                Direction::Backward => nodes.iter().rev().try_for_each(|node| self.compile(node, direction)),
            },
            PatternNode::Alternation(branches) => self.compile_alternation(branches, direction),
            PatternNode::Group { inner, number } if self.has_back_references => {
                self.push(Instruction::SavePosition(2 * number))?;
                self.compile(inner, direction)?;
                self.push(Instruction::SavePosition(2 * number + 1))
            }
            PatternNode::Group { inner, .. } => self.compile(inner, direction),
            PatternNode::LookAround { inner, direction, is_positive } => {
                let placeholder = self.push_placeholder()?;
                self.compile(inner, *direction)?;
                self.push(Instruction::Match)?;
                let end = self.next_index()?;
                self.program[placeholder] =
                    Instruction::LookAround { direction: *direction, is_positive: *is_positive, end };
                Ok(())
            }
            PatternNode::Repeat { inner, min, max, groups } => {
                self.compile_repeat(inner, *min, *max, *groups, direction)
            }
        }
    }

    fn compile_alternation(
        &mut self,
        branches: &[PatternNode],
        direction: Direction,
    ) -> Result<(), PatternError> {
        let mut ends = Vec::new();
        for (n, branch) in branches.iter().enumerate() {
            if n + 1 == branches.len() {
                self.compile(branch, direction)?;
                break;
            }
            let split = self.push_placeholder()?;
            self.compile(branch, direction)?;
            ends.push(self.push_placeholder()?);
            self.program[split] = Instruction::Split(to_index(split + 1)?, self.next_index()?);
        }
        let end = self.next_index()?;
        for placeholder in ends {
            self.program[placeholder] = Instruction::Jump(end);
        }
        Ok(())
    }

    fn compile_repeat(
        &mut self,
        inner: &PatternNode,
        min: u32,
        max: u32,
        groups: (u32, u32),
        direction: Direction,
    ) -> Result<(), PatternError> {
        match inner {
            _ if max == 0 => return Ok(()),
            PatternNode::Class(class) => {
                return self.push(Instruction::RepeatClass { class: *class, min, max });
            }
            PatternNode::Char(character) => {
                let class = match self.char_classes.iter().find(|(known, _)| known == character) {
                    Some((_, class)) => *class,
                    None => {
                        self.classes.push(CharClass::new(
                            vec![ClassItem::Range(*character, *character)],
                            false,
                            false,
                        ));
                        let class = to_index(self.classes.len() - 1)?;
                        self.char_classes.push((*character, class));
                        class
                    }
                };
                return self.push(Instruction::RepeatClass { class, min, max });
            }
            _ => {}
        }
        for _ in 0..min {
            let length_before = self.program.len();
            self.compile_repeat_body(inner, groups, direction)?;
            if self.program.len() == length_before {
                // An empty body stays empty however often it is repeated.
                return Ok(());
            }
        }
        if max == u32::MAX {
            return self.compile_unbounded(inner, groups, direction);
        }
        // Each optional round may be the last: `(?:x(?:x(?:x)?)?)?`.
        let mut splits = Vec::new();
        for _ in min..max {
            splits.push(self.push_placeholder()?);
            self.compile_repeat_body(inner, groups, direction)?;
        }
        let end = self.next_index()?;
        for split in splits {
            self.program[split] = Instruction::Split(to_index(split + 1)?, end);
        }
        Ok(())
    }

    fn compile_unbounded(
        &mut self,
        inner: &PatternNode,
        groups: (u32, u32),
        direction: Direction,
    ) -> Result<(), PatternError> {
        let split = self.push_placeholder()?;
        match can_be_empty(inner) {
            // A round that consumes nothing would loop forever, so each round must make progress.
            true => {
                let register = self.n_registers;
                self.n_registers += 1;
                self.push(Instruction::SavePosition(register))?;
                self.compile_repeat_body(inner, groups, direction)?;
                self.push(Instruction::RequireProgress(register))?;
            }
            false => self.compile_repeat_body(inner, groups, direction)?,
        }
        self.push(Instruction::Jump(to_index(split)?))?;
        self.program[split] = Instruction::Split(to_index(split + 1)?, self.next_index()?);
        Ok(())
    }

    /// Compiles one round of a repetition. Groups inside it are cleared first.
    fn compile_repeat_body(
        &mut self,
        inner: &PatternNode,
        (from, to): (u32, u32),
        direction: Direction,
    ) -> Result<(), PatternError> {
        if self.has_back_references && from < to {
            self.push(Instruction::ClearGroups { from: 2 * from, to: 2 * to })?;
        }
        self.compile(inner, direction)
    }
}

/// Whether a node can match the empty string.
fn can_be_empty(tree: &PatternNode) -> bool {
    match tree {
        PatternNode::Char(_) | PatternNode::Class(_) => false,
        PatternNode::Sequence(nodes) => nodes.iter().all(can_be_empty),
        PatternNode::Alternation(branches) => branches.iter().any(can_be_empty),
        PatternNode::Repeat { inner, min, .. } => *min == 0 || can_be_empty(inner),
        PatternNode::Group { inner, .. } => can_be_empty(inner),
        _ => true,
    }
}
