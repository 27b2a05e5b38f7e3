//! The devices that npumem knows: the built-in catalogue, and descriptions from files.
//!
//! `devices/*.toml` are compiled into the binary, so `--device ascend-910b2` needs no file. A
//! device may also be a file, or come from a folder of files; there a description with the name
//! of a built-in device takes its place.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use npumem_ir::Device;
use npumem_ir::device::DeviceError;
use thiserror::Error;

/// The device that is meant when none is named.
pub const DEFAULT_DEVICE: &str = "ascend-910b2";

/// Longest file that is read as a description.
const MAX_FILE: u64 = 1 << 20;

/// Most files that are read from one folder.
const MAX_FILES: usize = 1000;

macro_rules! built_in {
    ($($name:literal),+ $(,)?) => {
        /// Name and text of each built-in description.
        const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../devices/", $name, ".toml")))),+];
    };
}

built_in!(
    "amd-xdna",
    "arm-ethos-u65",
    "arm-ethos-u85",
    "ascend-310p",
    "ascend-910b2",
    "ascend-910b3",
    "ascend-950",
    "generic-npu",
    "nvidia-h100",
    "nvidia-h200",
    "qualcomm-hexagon-v73",
    "tenstorrent-wormhole",
    "tpu-v5e",
);

/// Why there is no such device.
#[derive(Debug, Error)]
pub enum CatalogueError {
    /// A file or folder cannot be read.
    #[error("{}: {error}", .path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A file is not a description.
    #[error("{}: {why}", .path.display())]
    NotADescription {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A description has a mistake.
    #[error("{place}: {error}")]
    Description {
        /// The file, or the built-in description.
        place: String,
        /// The mistake.
        error: Box<DeviceError>,
    },
    /// Two files of one folder describe devices of one name.
    #[error("{}: the device `{name}` is already described by {}", .second.display(), .first.display())]
    Duplicate {
        /// The name.
        name: String,
        /// The file that has it.
        first: PathBuf,
        /// The file that has it too.
        second: PathBuf,
    },
    /// No device has that name.
    #[error("there is no device `{name}`; {hint}")]
    Unknown {
        /// The name.
        name: String,
        /// The nearest name, or all names.
        hint: String,
    },
}

/// A device of the catalogue and where its description is.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The device.
    pub device: Device,
    /// The file of its description; absent for built-in devices.
    pub file: Option<PathBuf>,
}

/// All devices that can be named.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

impl Catalogue {
    /// The built-in devices, by name.
    ///
    /// # Errors
    /// Never in a released npumem: a test reads every built-in description.
    pub fn built_in() -> Result<Catalogue, CatalogueError> {
        let entries: Result<Vec<Entry>, CatalogueError> = BUILT_IN
            .iter()
            .map(|(name, text)| Ok(Entry { device: built_in_device(name, text)?, file: None }))
            .collect();
        Ok(Catalogue { entries: entries? })
    }

    /// Adds the description in a file, or those in a folder (`*.toml`, `*.json`, not in its subfolders).
    ///
    /// # Errors
    /// When something cannot be read, has a mistake, or two files describe one device.
    pub fn add(&mut self, path: &Path) -> Result<(), CatalogueError> {
        let files = if path.is_dir() { descriptions_in(path)? } else { vec![path.to_path_buf()] };
        let mut added: Vec<Entry> = Vec::new();
        for file in files {
            let device = read_file(&file)?;
            if let Some(twin) = added.iter().find(|entry| entry.device.name == device.name) {
                let first = twin.file.clone().unwrap_or_default();
                return Err(CatalogueError::Duplicate { name: device.name, first, second: file });
            }
            added.push(Entry { device, file: Some(file) });
        }
        self.entries.retain(|entry| added.iter().all(|new| new.device.name != entry.device.name));
        self.entries.extend(added);
        self.entries.sort_by(|a, b| a.device.name.cmp(&b.device.name));
        Ok(())
    }

    /// All devices, by name.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The device of that name or alias, in any case; a name wins over an alias, a file over a built-in device.
    ///
    /// # Errors
    /// When there is none, with the nearest name.
    pub fn find(&self, name: &str) -> Result<&Device, CatalogueError> {
        let named = |entry: &&Entry| entry.device.name.eq_ignore_ascii_case(name);
        let aliased = |entry: &&Entry| entry.device.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name));
        let found = self
            .entries
            .iter()
            .find(named)
            .or_else(|| self.entries.iter().filter(|entry| entry.file.is_some()).find(aliased))
            .or_else(|| self.entries.iter().find(aliased));
        match found {
            Some(entry) => Ok(&entry.device),
            None => Err(self.unknown(name)),
        }
    }

    /// The device that an argument names: one of these by name or alias, or a description by its path.
    ///
    /// # Errors
    /// When there is no such device, or its description has a mistake.
    pub fn resolve(&self, argument: &str) -> Result<Device, CatalogueError> {
        if is_path(argument) { read_file(Path::new(argument)) } else { self.find(argument).cloned() }
    }

    fn unknown(&self, name: &str) -> CatalogueError {
        let wanted = name.to_lowercase();
        let near: Vec<&str> = self
            .entries
            .iter()
            .map(|entry| entry.device.name.as_str())
            .filter(|known| known.split('-').any(|part| part.len() > 2 && wanted.contains(part)))
            .collect();
        let (what, names) = if near.is_empty() {
            ("the devices are", self.entries.iter().map(|entry| entry.device.name.as_str()).collect())
        } else {
            ("did you mean", near)
        };
        let hint = format!("{what} {}; a description in a file is named by its path", names.join(", "));
        CatalogueError::Unknown { name: name.chars().take(80).collect(), hint }
    }
}

/// The device that an argument names: a built-in device by name or alias, or a description by its path.
///
/// # Errors
/// When there is no such device, or its description has a mistake.
pub fn device(argument: &str) -> Result<Device, CatalogueError> {
    if is_path(argument) {
        return read_file(Path::new(argument));
    }
    // The usual case reads one description, not all.
    if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| name.eq_ignore_ascii_case(argument)) {
        return built_in_device(name, text);
    }
    Catalogue::built_in()?.find(argument).cloned()
}

/// Whether a device argument means a file: it ends in `.toml` or `.json`, or has a separator.
fn is_path(argument: &str) -> bool {
    let ending = Path::new(argument).extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("toml" | "json")) || argument.contains(['/', '\\'])
}

/// Reads a description from a file: JSON when its name ends in `.json`, TOML otherwise.
///
/// # Errors
/// When the file cannot be read or has a mistake.
pub fn read_file(path: &Path) -> Result<Device, CatalogueError> {
    let unreadable = |error| CatalogueError::Unreadable { path: path.to_path_buf(), error };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE {
        let why = format!("larger than {MAX_FILE} bytes, which no device description is");
        return Err(CatalogueError::NotADescription { path: path.to_path_buf(), why });
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let why = format!("byte {} is not UTF-8 text", error.utf8_error().valid_up_to());
        CatalogueError::NotADescription { path: path.to_path_buf(), why }
    })?;
    let json = path.extension().is_some_and(|ending| ending == "json");
    let device = if json { Device::from_json(&text) } else { Device::from_toml(&text) };
    device.map_err(|error| CatalogueError::Description { place: path.display().to_string(), error: Box::new(error) })
}

fn built_in_device(name: &str, text: &str) -> Result<Device, CatalogueError> {
    Device::from_toml(text).map_err(|error| CatalogueError::Description {
        place: format!("built-in device {name}"),
        error: Box::new(error),
    })
}

/// The descriptions of a folder, in the order of their names.
fn descriptions_in(folder: &Path) -> Result<Vec<PathBuf>, CatalogueError> {
    let unreadable = |error| CatalogueError::Unreadable { path: folder.to_path_buf(), error };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let described = path.extension().is_some_and(|ending| ending == "toml" || ending == "json");
        if described && path.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            let why = format!("more than {MAX_FILES} descriptions in one folder");
            return Err(CatalogueError::NotADescription { path: folder.to_path_buf(), why });
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use npumem_ir::device::{Origin, SpaceKind};

    use super::*;

    fn catalogue() -> Catalogue {
        Catalogue::built_in().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_file_of_the_folder_is_built_in_under_its_name() {
        let folder = npumem_testing::workspace_root().join("devices");
        let files: Vec<String> = npumem_testing::files_under(&folder, ".toml")
            .iter()
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        assert_eq!(files, names);
        let described: Vec<String> = catalogue().entries().iter().map(|entry| entry.device.name.clone()).collect();
        assert_eq!(described, names);
    }

    #[test]
    fn every_description_reads_back_to_itself_in_both_syntaxes() {
        for Entry { device, .. } in catalogue().entries() {
            let again = Device::from_toml(&device.to_toml()).unwrap_or_else(|error| panic!("{device}: {error}"));
            assert_eq!(&again, device);
            let json =
                Device::from_json(&device.to_json().to_string()).unwrap_or_else(|error| panic!("{device}: {error}"));
            assert_eq!(&json, device);
        }
    }

    #[test]
    fn every_figure_has_an_origin_and_every_source_is_used() {
        for Entry { device, .. } in catalogue().entries() {
            let mut used = BTreeSet::new();
            for row in device.figures() {
                assert_eq!(row.value.is_some(), row.origin.is_some(), "{device}: {}", row.path);
                match row.origin {
                    Some(Origin::Source(key)) => {
                        used.insert(key);
                    }
                    Some(Origin::Estimated(why)) => assert!(why.len() > 3, "{device}: {}", row.path),
                    None => {}
                }
            }
            let known: BTreeSet<String> = device.sources.keys().cloned().collect();
            assert_eq!(used, known, "{device}: sources used, sources given");
        }
    }

    #[test]
    fn every_device_can_be_planned_for() {
        for Entry { device, .. } in catalogue().entries() {
            assert!(!device.title.is_empty() && !device.vendor.is_empty(), "{device}");
            let main = device.main_memory().unwrap_or_else(|| panic!("{device}: no main memory"));
            assert!(device.links().any(|(_, link)| link.from == main), "{device}: nothing leaves the main memory");
            assert!(device.spaces.iter().any(|space| space.kind != SpaceKind::Dram), "{device}: no on-chip space");
            for link in &device.links {
                assert!(link.rate.known().is_some(), "{device}: {} has no rate", link.name);
            }
            for space in device.spaces.iter().filter(|space| space.kind == SpaceKind::Scratchpad) {
                assert!(space.capacity.known().is_some(), "{device}: {} has no capacity", space.name);
                assert!(space.alignment.known().is_some(), "{device}: {} has no alignment", space.name);
            }
        }
    }

    #[test]
    fn no_two_devices_answer_to_one_name() {
        let mut taken = BTreeSet::new();
        for Entry { device, .. } in catalogue().entries() {
            for name in device.aliases.iter().chain([&device.name]) {
                assert!(taken.insert(name.to_lowercase()), "{device}: {name} is taken");
            }
        }
    }

    #[test]
    fn devices_are_found_by_name_alias_and_path() {
        assert_eq!(device(DEFAULT_DEVICE).unwrap().name, DEFAULT_DEVICE);
        assert_eq!(device("Ascend910B2").unwrap().name, "ascend-910b2");
        let path = npumem_testing::workspace_root().join("devices/generic-npu.toml");
        assert_eq!(device(&path.to_string_lossy()).unwrap().name, "generic-npu");
        assert_eq!(catalogue().resolve(&path.to_string_lossy()).unwrap().name, "generic-npu");
        assert_eq!(catalogue().resolve("a2").unwrap().name, "ascend-910b2");
        let error = device("ascend-911").unwrap_err().to_string();
        assert!(error.starts_with("there is no device `ascend-911`; did you mean ascend-"), "{error}");
        let error = device("toaster").unwrap_err().to_string();
        assert!(error.contains("the devices are amd-xdna, arm-ethos-u65"), "{error}");
        assert!(device("no/such/file.toml").unwrap_err().to_string().starts_with("no/such/file.toml: "));
    }

    #[test]
    fn a_folder_extends_and_replaces() {
        let folder = std::env::temp_dir().join(format!("npumem-catalogue-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut own = device("generic-npu").unwrap();
        own.title = "mine".to_owned();
        std::fs::write(folder.join("a.json"), own.to_json().to_string()).unwrap();
        own.name = "bench-board".to_owned();
        own.aliases = vec!["a2".to_owned()];
        std::fs::write(folder.join("b.toml"), own.to_toml()).unwrap();
        std::fs::write(folder.join("notes.txt"), "not a description").unwrap();

        let mut all = catalogue();
        let before = all.entries().len();
        all.add(&folder).unwrap();
        assert_eq!(all.entries().len(), before + 1);
        assert_eq!(all.find("generic-npu").unwrap().title, "mine");
        assert_eq!(all.find("A2").unwrap().name, "bench-board");

        std::fs::write(folder.join("c.toml"), own.to_toml()).unwrap();
        let twice = all.add(&folder).unwrap_err().to_string();
        assert!(twice.contains("the device `bench-board` is already described by"), "{twice}");

        std::fs::write(folder.join("c.toml"), own.to_toml().replace("version = 1", "version = 9")).unwrap();
        let wrong = all.add(&folder.join("c.toml")).unwrap_err().to_string();
        assert!(wrong.contains("c.toml: line 2, column 11: `version`: found 9; expected version 1"), "{wrong}");

        std::fs::write(folder.join("c.toml"), [0xff, 0xfe]).unwrap();
        let binary = all.add(&folder.join("c.toml")).unwrap_err().to_string();
        assert!(binary.contains("byte 0 is not UTF-8"), "{binary}");
        let path = folder.join("c.toml");
        assert_eq!(all.resolve(&path.to_string_lossy()).unwrap_err().to_string(), binary);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The architectures that PyPTO exports with its placement problems give physical and usable sizes.
    #[test]
    fn ascend_spaces_agree_with_the_exported_architectures() {
        let Some(folder) = npumem_testing::shared("data/placement/dsa-problems/architectures") else { return };
        for file in npumem_testing::files_under(&folder, ".json") {
            let text = std::fs::read_to_string(&file).unwrap();
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            let device = device(json["architecture_id"].as_str().unwrap()).unwrap();
            for space in json["memory_spaces"].as_array().unwrap() {
                let name = space["logical_space"].as_str().unwrap();
                let id = device.space_named(name).unwrap_or_else(|| panic!("{device}: no space {name}"));
                let number = |key: &str| space[key].as_u64().unwrap();
                assert_eq!(device.usable(id).unwrap().get(), number("usable_capacity"), "{device}: {name}");
                assert_eq!(device.capacity(id).unwrap().get(), number("physical_capacity"), "{device}: {name}");
            }
        }
    }
}
