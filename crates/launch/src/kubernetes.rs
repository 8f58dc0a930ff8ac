//! Kubernetes: plain manifests of a swarm, a pod a peer.
//!
//! The pods are those of a StatefulSet, so each has a name that stays and a volume that stays; a Service without an address of its own makes
//! the names known. A Secret holds what the ticket is made of, so that pods need neither a server nor any right to ask Kubernetes: each makes
//! the ticket itself, from the secret and the names of the others. A pod that is replaced joins the others again. When training is done, the
//! pods stay, because the run is in them.
//!
//! The manifests were checked by hand with the Python package `kubernetes-validate --strict` against the published schemas of Kubernetes 1.25,
//! 1.29 and 1.33; check them so again after a change.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::error::LaunchError;
use crate::package::Package;
use crate::yaml::document;

/// What every pod runs.
const POD_SCRIPT: &str = include_str!("pod.sh");
const POD_FILE: &str = "pod.sh";
/// Where peers listen: a pod has its ports to itself.
const PORT: u16 = 7800;
/// Nobody in particular; not root.
const USER: u32 = 10_001;
const SECRET_PATH: &str = "/etc/nettorrent/secret";
const JOB_PATH: &str = "/etc/nettorrent/job";
const WORK_PATH: &str = "/peer";
/// How long a pod has to leave with a checkpoint.
const SECONDS_TO_LEAVE: u32 = 120;

/// A swarm of pods.
#[derive(Clone)]
pub struct Kubernetes {
    /// The name of its objects.
    pub name: String,
    /// Its number of pods.
    pub n_peers: usize,
    /// The container image, which has the program and a shell.
    pub image: String,
    /// Where it is to be; else where `kubectl` is.
    pub namespace: Option<String>,
    /// The processors of a pod, and its compute threads.
    pub n_cpus: usize,
    /// The memory of a pod, as Kubernetes takes it.
    pub memory: String,
    /// The volume of a pod, as Kubernetes takes it.
    pub storage: String,
    /// What the ticket is made of.
    pub secret: String,
}

impl Kubernetes {
    /// A name that Kubernetes takes, from any other.
    pub fn name_of(text: &str) -> String {
        let kept = text.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let name: String = format!("nettorrent-{kept}").chars().take(40).collect();
        name.trim_end_matches('-').to_owned()
    }

    /// The manifests, as a stream of YAML.
    pub fn yaml(&self, package: &Package) -> Result<String, LaunchError> {
        let documents: Vec<String> = self.manifests(package)?.iter().map(document).collect();
        Ok(documents.join("---\n"))
    }

    /// Has `kubectl` make or change the objects; what it says.
    pub fn apply(&self, package: &Package) -> Result<String, LaunchError> {
        let failed = |source| LaunchError::NoKubectl { source };
        let mut command = Command::new("kubectl");
        // Through its input, so that the secret is in no file and no command line.
        command.args(["apply", "--filename", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let yaml = self.yaml(package)?;
        if let Some(mut input) = child.stdin.take() {
            // If it does not listen, it says why.
            let _ = input.write_all(yaml.as_bytes());
        }
        let output = child.wait_with_output().map_err(failed)?;
        if !output.status.success() {
            return Err(LaunchError::host("kubectl", String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Commands that follow the swarm, fetch what it learnt, and remove it: what each is for, and how one types it.
    pub fn next_commands(&self) -> Vec<(&'static str, String)> {
        let name = &self.name;
        let kubectl = match &self.namespace {
            Some(namespace) => format!("kubectl --namespace {namespace}"),
            None => "kubectl".to_owned(),
        };
        let selected = format!("--selector app.kubernetes.io/instance={name}");
        vec![
            ("who is there", format!("{kubectl} exec {name}-0 -- nettorrent status run")),
            ("what happens", format!("{kubectl} logs --follow {name}-0")),
            ("fetch the run", format!("{kubectl} exec {name}-0 -- tar -cf - run | tar -xf -")),
            (
                "remove it all",
                format!(
                    "{kubectl} delete statefulset,service,secret,configmap,poddisruptionbudget,persistentvolumeclaim {selected}"
                ),
            ),
        ]
    }

    fn manifests(&self, package: &Package) -> Result<Vec<Value>, LaunchError> {
        let selector = json!({ "matchLabels": self.labels() });
        let secret = self.object("v1", "Secret", json!({ "type": "Opaque", "stringData": { "secret": self.secret } }));
        let job = self.object("v1", "ConfigMap", json!({ "data": files(package)? }));
        let service = json!({
            "clusterIP": "None",
            // Peers have to find each other before they can be ready.
            "publishNotReadyAddresses": true,
            "selector": self.labels(),
            "ports": [{ "name": "peers", "port": PORT }],
        });
        let service = self.object("v1", "Service", json!({ "spec": service }));
        let budget = json!({ "spec": { "maxUnavailable": 1, "selector": selector } });
        let budget = self.object("policy/v1", "PodDisruptionBudget", budget);
        let claim =
            json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": self.storage } } });
        let claim = json!({ "metadata": { "name": "work", "labels": self.labels() }, "spec": claim });
        let set = json!({
            "replicas": self.n_peers,
            "serviceName": self.name,
            // They wait for each other.
            "podManagementPolicy": "Parallel",
            "selector": selector,
            "template": { "metadata": { "labels": self.labels() }, "spec": self.pod(package) },
            "volumeClaimTemplates": [claim],
        });
        Ok(vec![secret, job, service, budget, self.object("apps/v1", "StatefulSet", json!({ "spec": set }))])
    }

    fn object(&self, version: &str, kind: &str, mut content: Value) -> Value {
        let mut metadata = json!({ "name": self.name, "labels": self.labels() });
        if let Some(namespace) = &self.namespace {
            metadata["namespace"] = json!(namespace);
        }
        content["apiVersion"] = json!(version);
        content["kind"] = json!(kind);
        content["metadata"] = metadata;
        content
    }

    fn labels(&self) -> Value {
        json!({ "app.kubernetes.io/name": "nettorrent", "app.kubernetes.io/instance": self.name })
    }

    fn pod(&self, package: &Package) -> Value {
        let per_host = json!({
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": self.labels() },
        });
        let user = json!({
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER, "seccompProfile": { "type": "RuntimeDefault" },
        });
        json!({
            "terminationGracePeriodSeconds": SECONDS_TO_LEAVE,
            "automountServiceAccountToken": false,
            "topologySpreadConstraints": [per_host],
            "securityContext": user,
            "containers": [self.container(package)],
            "volumes": [
                // Read by its owner and group: 0440.
                { "name": "secret", "secret": { "secretName": self.name, "defaultMode": 0o440 } },
                { "name": "job", "configMap": { "name": self.name } },
                { "name": "tmp", "emptyDir": {} },
            ],
        })
    }

    fn container(&self, package: &Package) -> Value {
        // Until there is a ticket, it waits for the others or opens the data; afterwards somebody of the swarm has to answer.
        let alive = "[ -e finished ] || [ ! -s run/ticket ] || nettorrent status run";
        let ready = "[ -e finished ] || nettorrent status run";
        let probe = |command: &str, seconds: u32, failures: u32| json!({ "exec": { "command": ["sh", "-c", command] }, "periodSeconds": seconds, "timeoutSeconds": 20, "failureThreshold": failures });
        let hosts: Vec<String> =
            (0..self.n_peers).map(|k| format!("{name}-{k}.{name}:{PORT}", name = self.name)).collect();
        let mut variables = vec![
            ("SWARM_SECRET", format!("{SECRET_PATH}/secret")),
            ("SWARM_JOB", JOB_PATH.to_owned()),
            ("SWARM_HOSTS", hosts.join(" ")),
            ("SWARM_LISTEN", format!("0.0.0.0:{PORT}")),
            ("SWARM_THREADS", self.n_cpus.to_string()),
            ("SWARM_STAYS", "yes".to_owned()),
            ("NETTORRENT_CACHE", format!("{WORK_PATH}/cache")),
        ];
        variables.extend(package.data_name.iter().map(|name| ("SWARM_DATA", name.clone())));
        variables.extend(package.data.iter().map(|path| ("SWARM_PATH", path.display().to_string())));
        variables.extend(package.python.iter().map(|model| ("SWARM_MODEL", model.clone())));
        let variables: Vec<Value> =
            variables.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        let mount =
            |name: &str, path: &str, read_only: bool| json!({ "name": name, "mountPath": path, "readOnly": read_only });
        json!({
            "name": "peer",
            "image": self.image,
            "command": ["sh", format!("{JOB_PATH}/{POD_FILE}")],
            "workingDir": WORK_PATH,
            "env": variables,
            "ports": [{ "name": "peers", "containerPort": PORT }],
            "resources": { "requests": { "cpu": self.n_cpus.to_string(), "memory": self.memory }, "limits": { "memory": self.memory } },
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
            },
            "livenessProbe": probe(alive, 60, 5),
            "readinessProbe": probe(ready, 15, 2),
            "volumeMounts": [
                mount("secret", SECRET_PATH, true), mount("job", JOB_PATH, true), mount("work", WORK_PATH, false), mount("tmp", "/tmp", false),
            ],
        })
    }
}

/// What travels to the pods, and what they run.
fn files(package: &Package) -> Result<Value, LaunchError> {
    let mut data = json!({ POD_FILE: POD_SCRIPT });
    for (name, content) in &package.files {
        let is_key = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
        if !is_key || name == POD_FILE {
            return Err(LaunchError::FileName { name: name.clone() });
        }
        data[name] = json!(content);
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::Job;
    use serde_json::Value;

    use super::Kubernetes;
    use crate::package::Package;

    fn swarm() -> (Kubernetes, Package) {
        let package = Package::new(&Job::parse("a job", "", &[]).unwrap()).unwrap();
        let (image, memory, storage) = ("registry.lab/nettorrent:1".into(), "2Gi".into(), "1Gi".into());
        let secret = "a secret of many letters, more than 32".into();
        let name = Kubernetes::name_of("My run_7");
        (Kubernetes { name, n_peers: 3, image, namespace: None, n_cpus: 2, memory, storage, secret }, package)
    }

    #[test]
    fn objects_name_each_other_rightly() {
        let (swarm, package) = swarm();
        assert_eq!(swarm.name, "nettorrent-my-run-7");
        let objects = swarm.manifests(&package).unwrap();
        let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap_or(&Value::Null);
        let set = &of("StatefulSet")["spec"];
        let pod = &set["template"]["spec"];
        assert_eq!(set["serviceName"], of("Service")["metadata"]["name"]);
        assert_eq!(pod["volumes"][0]["secret"]["secretName"], of("Secret")["metadata"]["name"]);
        assert_eq!(pod["volumes"][1]["configMap"]["name"], of("ConfigMap")["metadata"]["name"]);
        let labels = &set["template"]["metadata"]["labels"];
        for selector in [&set["selector"]["matchLabels"], &of("Service")["spec"]["selector"]] {
            assert_eq!(selector, labels);
        }
        assert_eq!(&of("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels);
        let container = &pod["containers"][0];
        let hosts = container["env"].as_array().unwrap().iter().find(|one| one["name"] == "SWARM_HOSTS").unwrap();
        let expected = ["0", "1", "2"].map(|k| format!("nettorrent-my-run-7-{k}.nettorrent-my-run-7:7800")).join(" ");
        assert_eq!(hosts["value"], expected);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        for probe in ["livenessProbe", "readinessProbe"] {
            assert!(container[probe]["exec"]["command"][2].as_str().unwrap().contains("nettorrent status run"));
        }
        // The secret is where it belongs, and nowhere else.
        let others = objects.iter().filter(|object| object["kind"] != "Secret");
        assert!(others.map(Value::to_string).all(|text| !text.contains("many letters")));
    }

    #[test]
    fn a_namespace_is_on_every_object_and_odd_names_of_files_are_refused() {
        let (swarm, mut package) = swarm();
        let swarm = Kubernetes { namespace: Some("lab".into()), ..swarm };
        let objects = swarm.manifests(&package).unwrap();
        assert!(objects.iter().all(|object| object["metadata"]["namespace"] == "lab"));
        assert_eq!(swarm.yaml(&package).unwrap().matches("\n---\n").count(), objects.len() - 1);
        package.files.push(("my model.toml".into(), String::new()));
        assert!(swarm.yaml(&package).unwrap_err().to_string().contains("my model.toml"));
    }
}
