// SPDX-License-Identifier: GPL-2.0-only
//! The JSON of rt-app: with comments, and with members that have an order and may repeat.

use anyhow::{Context, Result, bail, ensure};
use jsonc_parser::ast::Value;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};

/// JSON whose objects keep the order of their members, and members of the same name: events happen in that order, and
/// rt-app's workgen lets them repeat.
#[derive(Debug)]
pub enum Json {
    Other(&'static str),
    Bool(bool),
    Number(i64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Comments may be in it, as in what rt-app's JSON library reads.
    pub fn parse(text: &str) -> Result<Self> {
        let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: false };
        let options = ParseOptions {
            allow_comments: true,
            allow_loose_object_property_names: false,
            allow_trailing_commas: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        Ok(parse_to_ast(text, &collect, &options)?.value.context("it is empty")?.into())
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Other(kind) => kind,
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    pub fn object(&self) -> Result<&[(String, Json)]> {
        match self {
            Self::Object(members) => Ok(members),
            other => bail!("this is {}, and an object is needed", other.kind()),
        }
    }

    pub fn array(&self) -> Result<&[Json]> {
        match self {
            Self::Array(values) => Ok(values),
            other => bail!("this is {}, and an array is needed", other.kind()),
        }
    }

    pub fn text(&self) -> Result<&str> {
        match self {
            Self::Text(text) => Ok(text),
            other => bail!("this is {}, and a string is needed", other.kind()),
        }
    }

    pub fn number(&self, from: i64, to: i64) -> Result<i64> {
        match *self {
            Self::Number(number) => {
                ensure!((from..=to).contains(&number), "{number} is not in {from}..{to}");
                Ok(number)
            }
            ref other => bail!("this is {}, and an integer is needed", other.kind()),
        }
    }

    /// -1 is for ever.
    pub fn loops(&self) -> Result<Option<u32>> {
        let loops = self.number(-1, u32::MAX.into())?;
        ensure!(loops != 0, "0 loops: it is -1, for ever, or at least 1");
        Ok(u32::try_from(loops).ok())
    }
}

impl From<Value<'_>> for Json {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::NullKeyword(_) => Self::Other("null"),
            Value::BooleanLit(value) => Self::Bool(value.value),
            Value::NumberLit(number) => {
                number.value.parse().map_or(Self::Other("a number with a fraction, or too large"), Self::Number)
            }
            Value::StringLit(text) => Self::Text(text.value.into()),
            Value::Array(array) => Self::Array(array.elements.into_iter().map(Self::from).collect()),
            Value::Object(object) => Self::Object(
                object.properties.into_iter().map(|prop| (prop.name.into_string(), prop.value.into())).collect(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_repeat() {
        let json = Json::parse("{\"run\": 1, \"b\": 2, \"run\": 3}").unwrap();
        let members: Vec<_> =
            json.object().unwrap().iter().map(|(name, value)| (name.as_str(), value.number(0, 9).unwrap())).collect();
        assert_eq!(members, [("run", 1), ("b", 2), ("run", 3)]);
    }

    #[test]
    fn comments_are_passed_over_and_texts_are_not() {
        let json = Json::parse("{ // one \"two\"\n \"a//b\\\"/*\": /* c\n * d */ 1 }").unwrap();
        assert_eq!(json.object().unwrap()[0].0, "a//b\"/*");
    }

    #[test]
    fn what_is_not_json_is_refused_and_said_where() {
        for (text, place) in [
            ("{\n  /* a\n  comment */ \"a\": nothing\n}", "line 3 column"),
            ("[1,]", "line 1"),
            ("{a: 1}", "line 1"),
            ("", "empty"),
        ] {
            let err = Json::parse(text).unwrap_err().to_string();
            assert!(err.contains(place), "{text}: {err}");
        }
    }
}
