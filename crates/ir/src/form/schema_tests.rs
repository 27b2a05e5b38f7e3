//! The pages in `docs/formats/` say the truth: our JSON follows the schemas, and every example there reads.

use super::tests::{graph, plan, problem};
use crate::{Device, Graph, Plan, Problem};
use npumem_testing::{Random, workspace_root};
use serde_json::Value;

fn page(name: &str) -> String {
    let path = workspace_root().join("docs/formats").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks a value against the keywords that our schemas use; any other keyword is a fault of the schema.
fn check(root: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let fail = |why: String| Err(format!("{path}: {why}: {value}"));
    for (keyword, rule) in schema.as_object().unwrap() {
        let holds = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let target = root.pointer(rule.as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
                check(root, target, value, path)?;
                true
            }
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "anyOf" => {
                let options = rule.as_array().unwrap();
                let faults: Vec<String> = options.iter().filter_map(|s| check(root, s, value, path).err()).collect();
                if faults.len() == options.len() {
                    return Err(faults.join(" | "));
                }
                true
            }
            "type" => match rule.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "null" => value.is_null(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                other => panic!("type {other}"),
            },
            "minimum" => value.as_u64().is_none_or(|v| rule.as_u64().is_none_or(|least| least <= v)),
            "maximum" => value.as_u64().is_none_or(|v| v <= rule.as_u64().unwrap()),
            "minItems" => value.as_array().is_none_or(|v| rule.as_u64().unwrap() <= v.len() as u64),
            "maxItems" => value.as_array().is_none_or(|v| v.len() as u64 <= rule.as_u64().unwrap()),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{path}[{index}]"))?;
                }
                true
            }
            "required" => {
                let missing = rule.as_array().unwrap().iter().find(|key| value.get(key.as_str().unwrap()).is_none());
                if let Some(key) = missing.filter(|_| value.is_object()) {
                    return fail(format!("lacks {key}"));
                }
                true
            }
            "properties" => {
                for (key, schema) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        check(root, schema, value, &format!("{path}.{key}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (key, value) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(key)) {
                        continue;
                    }
                    if rule == &Value::Bool(false) {
                        return fail(format!("has an unknown key {key}"));
                    }
                    check(root, rule, value, &format!("{path}.{key}"))?;
                }
                true
            }
            other => panic!("{path}: this test does not know the keyword {other}"),
        };
        if !holds {
            return fail(format!("breaks {keyword} {rule}"));
        }
    }
    Ok(())
}

fn follows(schema: &Value, json: &str) {
    let value: Value = serde_json::from_str(json).unwrap();
    if let Err(fault) = check(schema, schema, &value, "$") {
        panic!("{fault}\n{json}");
    }
    let mut more = value;
    more["surplus"] = Value::from(1);
    assert!(check(schema, schema, &more, "$").is_err());
    more["version"] = Value::from(2);
    more.as_object_mut().unwrap().remove("surplus");
    assert!(check(schema, schema, &more, "$").is_err());
}

#[test]
fn our_json_follows_the_schemas() {
    let schema = |name: &str| serde_json::from_str::<Value>(&page(&format!("{name}.schema.json"))).unwrap();
    let (problems, plans, graphs) = (schema("problem"), schema("plan"), schema("graph"));
    let mut random = Random(11);
    for _ in 0..100 {
        follows(&problems, &problem(&mut random).to_json());
        follows(&plans, &plan(&mut random).to_json());
        follows(&graphs, &graph(&mut random, 0, 0).to_json());
    }
}

#[test]
fn every_device_of_the_catalogue_follows_the_schema() {
    let schema = serde_json::from_str::<Value>(&page("device.schema.json")).unwrap();
    let files = npumem_testing::files_under(&workspace_root().join("devices"), ".toml");
    assert!(files.len() > 12);
    for file in files {
        let device = Device::from_toml(&std::fs::read_to_string(file).unwrap()).unwrap();
        follows(&schema, &device.to_json().to_string());
    }
}

#[test]
fn every_example_of_the_pages_reads() {
    let mut count = 0;
    for name in ["problem.md", "plan.md", "graph.md"] {
        let page = page(name);
        for block in page.split("```").skip(1).step_by(2) {
            let (language, example) = block.split_once('\n').unwrap();
            match (name, language) {
                ("problem.md", "text") => drop(Problem::from_text(example).unwrap()),
                ("problem.md", "json") => drop(Problem::from_json(example).unwrap()),
                ("plan.md", "text") => drop(Plan::from_text(example).unwrap()),
                ("graph.md", "text") => drop(Graph::from_text(example).unwrap()),
                other => panic!("an example that nothing reads: {other:?}"),
            }
            count += 1;
        }
    }
    assert_eq!(count, 4);
}
