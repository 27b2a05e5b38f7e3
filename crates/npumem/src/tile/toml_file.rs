//! An operator from a TOML table: `operator = "matmul"`, then the keys of a spec.

use npumem_planner::tiling::{Operator, spec};

/// Reads it.
///
/// # Errors
/// The first mistake; TOML's own come with line and column.
pub fn read(text: &str) -> Result<Operator, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let family = match table.get("operator") {
        Some(toml::Value::String(family)) => family.to_lowercase(),
        Some(_) => return Err("'operator' must be a text, for example operator = \"matmul\"".into()),
        None => return Err("expected operator = \"matmul\" (or another family), then its keys".into()),
    };
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (key, value) in table.iter().filter(|(key, _)| *key != "operator") {
        let lower = key.to_lowercase();
        if pairs.iter().any(|(with, _)| *with == lower) {
            return Err(format!("'{lower}' is given twice, once as '{key}'"));
        }
        pairs.push((lower, written(key, value)?));
    }
    spec::build(&spec::Fields::new(&family, pairs)).map_err(|error| error.to_string())
}

fn written(key: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(flag) => Ok(flag.to_string()),
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Array(list) => {
            let parts: Vec<String> = list.iter().map(|one| written(key, one)).collect::<Result<_, _>>()?;
            Ok(parts.join(","))
        }
        other => Err(format!(
            "{key}: a {} is no value here; expected a number, a text, true or false, or a list",
            other.type_str()
        )),
    }
}
