//! Tests of the device page: the shipped descriptions, snapshots, widths, marks.

use super::*;

fn devices() -> Vec<Device> {
    let folder = npumem_testing::workspace_root().join("devices");
    npumem_testing::files_under(&folder, ".toml")
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            Device::from_toml(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect()
}

fn device(name: &str) -> Device {
    devices().into_iter().find(|device| device.name == name).unwrap()
}

#[test]
fn the_page_of_a_device_is_as_expected() {
    let folder = npumem_testing::workspace_root().join("crates/report/tests/device");
    for name in ["ascend-910b2", "generic-npu"] {
        let page = render(&device(name), &TextOptions::default());
        npumem_testing::expect_file(&folder.join(format!("{name}.txt")), &page);
    }
}

#[test]
fn every_page_holds_its_width_and_names_every_space_link_and_engine() {
    for device in devices() {
        let page = render(&device, &TextOptions { width: 120, ..TextOptions::default() });
        for line in page.lines() {
            assert!(figures::width(line) <= 120, "{device}: {line}");
        }
        for space in &device.spaces {
            assert!(page.contains(&space.role.split(' ').next().unwrap().to_owned()), "{device}: {}", space.name);
        }
        for engine in &device.engines {
            assert!(page.contains(&engine.name), "{device}: {}", engine.name);
        }
        assert!(!page.contains('\u{1b}'), "{device}: colours in plain text");
        assert!(render(&device, &TextOptions { colour: true, ..TextOptions::default() }).contains('\u{1b}'));
        let boxes = page.lines().filter(|line| line.contains("+-- ")).count();
        assert!(boxes > device.cores.len(), "{device}: {boxes} boxes");
    }
}

#[test]
fn estimates_are_marked_and_unknowns_are_named() {
    let page = render(&device("qualcomm-hexagon-v73"), &TextOptions::default());
    assert!(page.contains("clock ?"), "{page}");
    assert!(page.contains("device.clock"), "{page}");
    let ascend = render(&device("ascend-910b2"), &TextOptions::default());
    assert!(ascend.contains("~720 cy") && ascend.contains("~1.60 TB/s") && ascend.contains("188,416"));
}

#[test]
fn the_json_carries_what_the_text_shows() {
    for device in devices() {
        let json = to_json(&device);
        assert_eq!(json["figures"].as_array().unwrap().len(), device.figures().len());
        let again = Device::from_json(&json["device"].to_string()).unwrap();
        assert_eq!(again, device);
        for figure in json["figures"].as_array().unwrap() {
            let known = !figure["value"].is_null();
            let said = !figure["source"].is_null() || !figure["estimated"].is_null();
            assert_eq!(known, said, "{device}: {}", figure["path"]);
        }
    }
    let json = to_json(&device("ascend-910b2"));
    assert_eq!(json["main_memory"], "hbm");
    let f16 =
        json["peaks"].as_array().unwrap().iter().find(|peak| peak["precision"] == "f16" && peak["kind"] == "matrix");
    assert_eq!(f16.unwrap()["operations_per_second"], 8192.0 * 24.0 * 1.8e9);
}

#[test]
fn the_hierarchy_of_a_plan_report_is_that_of_the_device() {
    let ascend = device("ascend-910b2");
    let hierarchy = hierarchy(&ascend);
    assert_eq!(hierarchy.levels.len(), ascend.spaces.len());
    assert_eq!(hierarchy.links.len(), ascend.links.len());
    let ub = hierarchy.levels.iter().find(|level| level.name == "ub").unwrap();
    assert_eq!((ub.capacity, ub.usable), (Some(Bytes(196_608)), Some(Bytes(188_416))));
    assert_eq!((ub.scope.as_str(), ub.count), ("aiv", Some(48)));
    assert_eq!(ub.latency.as_ref().unwrap().source, None);
    let mte2 = hierarchy.links.iter().find(|link| link.from == "l2" && link.to == "ub").unwrap();
    assert_eq!(mte2.bandwidth.as_ref().unwrap().value, 110.0 * 1.8e9);
    assert!(mte2.bandwidth.as_ref().unwrap().source.is_some());
}

#[test]
fn the_list_has_a_line_for_each_device() {
    let devices = devices();
    let text = list(&devices, &TextOptions { width: 140, ..TextOptions::default() });
    assert_eq!(text.lines().count(), devices.len() + 1);
    let ascend = text.lines().find(|line| line.contains("ascend-910b2")).unwrap();
    assert!(ascend.contains("64.00 GiB") && ascend.contains("~1.60 TB/s") && ascend.contains("354 Top/s"), "{ascend}");
}
