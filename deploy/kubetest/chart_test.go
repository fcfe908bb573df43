// Package kubetest_test renders the chart in deploy/chart with Helm and decodes the result
// strictly with the types of Kubernetes: an unknown or misspelled field is an error, which a
// cluster would ignore.
package kubetest_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

const (
	chart       = "../chart"
	manifests   = "../kubernetes/feedbridge.yaml"
	plainValues = "../kubernetes/values.yaml"
)

var update = flag.Bool("update", false, "render deploy/kubernetes/feedbridge.yaml")

// helm runs Helm, $HELM or the one in PATH, without access to a cluster.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	program := os.Getenv("HELM")
	if program == "" {
		program = "helm"
	}
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("REQUIRE_HELM") != "" {
			t.Fatal(err)
		}
		t.Skipf("there is no Helm (go install helm.sh/helm/v4/cmd/helm@latest): %v", err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG=/dev/null")
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func render(t *testing.T, values string, more ...string) string {
	t.Helper()
	return renderAs(t, "feedbridge", values, more...)
}

// renderAs is render with the name of a release.
func renderAs(t *testing.T, release, values string, more ...string) string {
	t.Helper()
	out, errs, err := helm(t, append([]string{"template", release, chart, "--values", values}, more...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	return out
}

// decode returns the manifests of a YAML stream.
func decode(t *testing.T, stream string) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme, monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for document := range strings.SplitSeq(stream, "\n---\n") {
		if strings.TrimSpace(regexp.MustCompile(`(?m)^(#.*|---)$`).ReplaceAllString(document, "")) == "" {
			continue
		}
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Errorf("%v\n%s", err, document)
			continue
		}
		objects = append(objects, object)
	}
	return objects
}

// find returns the only manifest of a type.
func find[T runtime.Object](t *testing.T, objects []runtime.Object) (found T) {
	t.Helper()
	n := 0
	for _, object := range objects {
		if o, ok := object.(T); ok {
			found, n = o, n+1
		}
	}
	if n != 1 {
		t.Fatalf("%d manifests of the type %T", n, found)
	}
	return found
}

func kinds(objects []runtime.Object) (all []string) {
	for _, object := range objects {
		all = append(all, object.GetObjectKind().GroupVersionKind().Kind)
	}
	slices.Sort(all)
	return all
}

func TestChartRendersWhatKubernetesKnows(t *testing.T) {
	t.Parallel()
	for values, want := range map[string][]string{
		"testdata/minimal.yaml":    {"ConfigMap", "Deployment", "NetworkPolicy"},
		"testdata/everything.yaml": {"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "Secret", "Service"},
		plainValues:                {"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"},
	} {
		t.Run(filepath.Base(values), func(t *testing.T) {
			t.Parallel()
			objects := decode(t, render(t, values))
			if got := kinds(objects); !slices.Equal(got, want) {
				t.Errorf("rendered %v, want %v", got, want)
			}
			for _, object := range objects {
				o := object.(meta.Object)
				if errs := validation.NameIsDNSLabel(o.GetName(), false); len(errs) > 0 {
					t.Errorf("the name %q: %v", o.GetName(), errs)
				}
			}
			checkReferences(t, objects)
		})
	}
}

// A release may have any name that Helm accepts, such as 123 or my.release. The names and labels of
// its manifests are valid, and labels are text. The name of a Service begins with a letter.
func TestChartTakesAnyNameOfARelease(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{
		"feedbridge":                   "feedbridge",
		"my-feedbridge":                "my-feedbridge",
		"shop":                         "shop-feedbridge",
		"my.release":                   "my-release-feedbridge",
		"my.feedbridge":                "my-feedbridge",
		"123":                          "feedbridge-123",
		"0x1f":                         "feedbridge-0x1f",
		"1.5":                          "feedbridge-1-5",
		"1e3":                          "feedbridge-1e3",
		"2-feedbridge":                 "feedbridge-2-feedbridge",
		"true":                         "true-feedbridge",
		strings.Repeat("a", 53):        strings.Repeat("a", 53),
		"1" + strings.Repeat("a", 52):  "feedbridge-1" + strings.Repeat("a", 41),
		strings.Repeat("a.", 26) + "b": strings.Repeat("a-", 26) + "b",
	} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			objects := decode(t, renderAs(t, release, "testdata/everything.yaml"))
			for _, object := range objects {
				o := object.(meta.Object)
				if errs := validation.NameIsDNS1035Label(o.GetName(), false); o.GetName() != want || len(errs) > 0 {
					t.Errorf("the name %q, want %q: %v", o.GetName(), want, errs)
				}
				if instance := o.GetLabels()["app.kubernetes.io/instance"]; instance != release {
					t.Errorf("the label instance is %q", instance)
				}
			}
			if errs := metavalidation.ValidateLabels(find[*apps.Deployment](t, objects).Spec.Template.Labels, nil); len(errs) > 0 {
				t.Error(errs)
			}
			checkReferences(t, objects)
		})
	}
}

// Names in the values may be numbers or words that are booleans in YAML.
func TestChartQuotesNames(t *testing.T) {
	t.Parallel()
	pod := find[*apps.Deployment](t, decode(t, render(t, plainValues, "--set-string", "serviceAccount.name=1,imagePullSecrets[0]=2,priorityClassName=3,"+
		"secrets.variables[0]=4,secrets.files[0]=5,env.NO=6,secrets.create.variables.OFF=7,secrets.create.files.8=8"))).Spec.Template.Spec
	if pod.ServiceAccountName != "1" || pod.ImagePullSecrets[0].Name != "2" || pod.PriorityClassName != "3" || pod.Containers[0].EnvFrom[0].SecretRef.Name != "4" {
		t.Errorf("the pod is %+v", pod)
	}
	var names []string
	for _, e := range pod.Containers[0].Env {
		names = append(names, e.Name)
	}
	if !slices.Contains(names, "NO") || !slices.Contains(names, "OFF") {
		t.Errorf("the variables are %q", names)
	}
}

// checkReferences checks that each object that a manifest refers to exists.
func checkReferences(t *testing.T, objects []runtime.Object) {
	t.Helper()
	deployment := find[*apps.Deployment](t, objects)
	pod := labels.Set(deployment.Spec.Template.Labels)
	selects := func(kind string, selector *meta.LabelSelector) {
		s, err := meta.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || !s.Matches(pod) {
			t.Errorf("%s selects %v, the pods have %v: %v", kind, s, pod, err)
		}
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	var ports, volumes, secrets []string
	for _, p := range container.Ports {
		ports = append(ports, p.Name)
	}
	for _, v := range deployment.Spec.Template.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	hasPort := func(kind, port string) {
		if !slices.Contains(ports, port) {
			t.Errorf("%s names the port %q, the container has %v", kind, port, ports)
		}
	}
	selects("Deployment", deployment.Spec.Selector)
	for name, probe := range map[string]*core.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		hasPort(name, probe.HTTPGet.Port.StrVal)
		if want := map[bool]string{true: "/readyz", false: "/healthz"}[name == "readiness"]; probe.HTTPGet.Path != want {
			t.Errorf("the %s probe asks for %s, want %s", name, probe.HTTPGet.Path, want)
		}
	}
	for _, m := range container.VolumeMounts {
		if !slices.Contains(volumes, m.Name) {
			t.Errorf("the volume %q is mounted, there are %v", m.Name, volumes)
		}
	}
	for _, e := range container.Env {
		if e.ValueFrom != nil {
			secrets = append(secrets, e.ValueFrom.SecretKeyRef.Key)
		}
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *core.Service:
			selects("Service", &meta.LabelSelector{MatchLabels: o.Spec.Selector})
			hasPort("Service", o.Spec.Ports[0].TargetPort.StrVal)
		case *policy.PodDisruptionBudget:
			selects("PodDisruptionBudget", o.Spec.Selector)
		case *networking.NetworkPolicy:
			selects("NetworkPolicy", &o.Spec.PodSelector)
			for _, rule := range o.Spec.Ingress {
				hasPort("NetworkPolicy", rule.Ports[0].Port.StrVal)
			}
		case *monitoring.PodMonitor:
			selects("PodMonitor", &o.Spec.Selector)
			hasPort("PodMonitor", *o.Spec.PodMetricsEndpoints[0].Port)
		case *core.Secret:
			for _, v := range deployment.Spec.Template.Spec.Volumes {
				for _, source := range projected(v) {
					for _, item := range source.Secret.Items {
						secrets = append(secrets, item.Key)
					}
				}
			}
			for key := range o.StringData {
				if !slices.Contains(secrets, key) {
					t.Errorf("nothing uses %q of the Secret, only %v", key, secrets)
				}
			}
			if len(secrets) != len(o.StringData) {
				t.Errorf("%v of the Secret are used, it has %v", secrets, o.StringData)
			}
		}
	}
}

func projected(v core.Volume) []core.VolumeProjection {
	if v.Projected == nil {
		return nil
	}
	return v.Projected.Sources
}

func TestValuesArriveInTheManifests(t *testing.T) {
	t.Parallel()
	objects := decode(t, render(t, "testdata/everything.yaml"))
	deployment := find[*apps.Deployment](t, objects)
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	secret := find[*core.Secret](t, objects)
	budget := find[*policy.PodDisruptionBudget](t, objects)
	rules := find[*networking.NetworkPolicy](t, objects).Spec
	for name, ok := range map[string]bool{
		"replicas":         *deployment.Spec.Replicas == 5,
		"image":            container.Image == "registry.example.com/feedbridge@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"limits":           container.Resources.Limits.Cpu().String() == "1500m",
		"quoted secret":    secret.StringData["variable.PRODUCTS_TOKEN"] == `a "quoted" token: yes`,
		"secret of digits": secret.StringData["variable.NUMBER"] == "12345",
		"file":             secret.StringData["file.kafka-password"] == "two\nlines",
		"budget":           budget.Spec.MaxUnavailable.StrVal == "40%",
		"egress":           len(rules.Egress) == 3 && rules.Egress[0].Ports[0].Port.IntVal == 53 && len(rules.PolicyTypes) == 2,
		"large number":     strings.Contains(find[*core.ConfigMap](t, objects).Data["feedbridge.yaml"], "memory: 67108864\n"),
		"read-only root":   *container.SecurityContext.ReadOnlyRootFilesystem,
		"no token":         !*pod.AutomountServiceAccountToken,
		"grace":            *pod.TerminationGracePeriodSeconds == 90,
		"files":            len(projected(pod.Volumes[2])) == 2,
	} {
		if !ok {
			t.Errorf("%s did not arrive", name)
		}
	}
	changed := find[*apps.Deployment](t, decode(t, render(t, "testdata/everything.yaml", "--set", "config.grace=20s")))
	if changed.Spec.Template.Annotations["checksum/config"] == deployment.Spec.Template.Annotations["checksum/config"] {
		t.Error("a change of the configuration does not replace the pods")
	}
}

// Without a value nobody but the nodes reaches the admin server, and the policy can be turned off.
func TestTheAdminServerIsClosed(t *testing.T) {
	t.Parallel()
	rules := find[*networking.NetworkPolicy](t, decode(t, render(t, "testdata/minimal.yaml"))).Spec
	if len(rules.Ingress) > 0 || !slices.Equal(rules.PolicyTypes, []networking.PolicyType{"Ingress"}) {
		t.Errorf("the policy has %d rules, %v", len(rules.Ingress), rules.PolicyTypes)
	}
	fleet := find[*networking.NetworkPolicy](t, decode(t, render(t, "testdata/minimal.yaml", "--set", "fleet.enabled=true"))).Spec
	if len(fleet.Ingress) != 1 || len(fleet.Ingress[0].From) != 1 || !maps.Equal(fleet.Ingress[0].From[0].PodSelector.MatchLabels, fleet.PodSelector.MatchLabels) || fleet.Ingress[0].Ports[0].Port.StrVal != "admin" {
		t.Errorf("members of a fleet reach each other by the rules %v", fleet.Ingress)
	}
	if got := kinds(decode(t, render(t, "testdata/minimal.yaml", "--set", "networkPolicy.enabled=false"))); slices.Contains(got, "NetworkPolicy") {
		t.Errorf("without a policy the chart renders %v", got)
	}
}

// The schema refuses each wrong value, and its error names it.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	// The library of Helm names the wrong place of an invalid name, but the name itself.
	for set, want := range map[string]string{
		"replcas=3":                               "additional properties 'replcas' not allowed",
		"replicas=-1":                             "at '/replicas'",
		"replicas=two":                            "at '/replicas'",
		"image.tag=a b":                           "at '/image/tag'",
		"image.digest=sha256:12":                  "at '/image/digest'",
		"image.pullPolicy=Sometimes":              "at '/image/pullPolicy'",
		"image.repository=":                       "at '/image/repository'",
		"imagePullSecrets[0]=A_B":                 "at '/imagePullSecrets/0'",
		"config=null":                             "missing property 'config'",
		"config.buses=null":                       "at '/config/buses'",
		"config.feed.x.url=y":                     "additional properties 'feed' not allowed",
		"config.feeds.orders.evry=1s":             "additional properties 'evry' not allowed",
		"config.admin.listen=off":                 "additional properties 'admin' not allowed",
		"config.data_dir=/data":                   "additional properties 'data_dir' not allowed",
		"config.serve.listen=0.0.0.0:80":          "additional properties 'listen' not allowed",
		"config.buses.here.embedded.listen=x":     "additional properties 'embedded' not allowed",
		"env.A-B=c":                               "'A-B' does not match pattern",
		"secrets.variables[0]=A_B":                "at '/secrets/variables/0'",
		"secrets.files=one":                       "at '/secrets/files'",
		"secrets.create.files.a/b=c":              "'a/b' does not match pattern",
		"secrets.create.variables.1A=c":           "'1A' does not match pattern",
		"service.port=0":                          "at '/service/port'",
		"service.type=ExternalName":               "at '/service/type'",
		"resources.limits.memory=256 MB":          "at '/resources/limits/memory'",
		"tmp.sizeLimit=much":                      "at '/tmp/sizeLimit'",
		"terminationGracePeriodSeconds=0":         "at '/terminationGracePeriodSeconds'",
		"podDisruptionBudget.maxUnavailable=some": "at '/podDisruptionBudget/maxUnavailable'",
		"podDisruptionBudget.enabled=perhaps":     "at '/podDisruptionBudget/enabled'",
		"podMonitor.interval=30":                  "at '/podMonitor/interval'",
		"networkPolicy.admin[0].hosts=a":          "at '/networkPolicy/admin/0'",
		"networkPolicy.egress[0].cidr=10.0.0.0/8": "at '/networkPolicy/egress/0'",
		"serviceAccount.name=A_B":                 "at '/serviceAccount/name'",
		"podLabels.team.name=x":                   "at '/podLabels/team'",
		"nodeSelector=arm64":                      "at '/nodeSelector'",
		"tolerations.key=x":                       "at '/tolerations'",
		"affinity=near":                           "at '/affinity'",
		"priorityClassName[0]=x":                  "at '/priorityClassName'",
		"fleet.enabled=true,fleet.name=1st":       "at '/fleet/name'",
		"fleet.enabled=true,config.fleet.name=a":  "fleet.enabled and config.fleet both set up a fleet: remove one of them",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			_, errs, err := helm(t, "template", "feedbridge", chart, "--values", "testdata/minimal.yaml", "--set", set)
			if err == nil || !strings.Contains(errs, want) {
				t.Errorf("%v, %s", err, errs)
			}
		})
	}
}

func TestChartHasNoLint(t *testing.T) {
	t.Parallel()
	for _, values := range []string{plainValues, "testdata/everything.yaml", "testdata/minimal.yaml"} {
		if out, errs, err := helm(t, "lint", "--strict", chart, "--values", values); err != nil {
			t.Errorf("%s: %v\n%s%s", values, err, out, errs)
		}
	}
}

// The plain manifests are those of the chart. With -update they get written.
func TestPlainManifestsAreUpToDate(t *testing.T) {
	t.Parallel()
	var plain strings.Builder
	plain.WriteString("# Rendered from deploy/chart with values.yaml: go test -C deploy/kubetest -run Plain . -update\n")
	for line := range strings.Lines(render(t, plainValues)) {
		// What only Helm needs.
		if !strings.Contains(line, "app.kubernetes.io/managed-by:") && strings.TrimSpace(line) != "" {
			plain.WriteString(line)
		}
	}
	if *update {
		if err := os.WriteFile(manifests, []byte(plain.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(manifests)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != plain.String() {
		t.Errorf("%s is not what the chart renders: run this test with -update", manifests)
	}
	if len(decode(t, string(have))) != 5 {
		t.Errorf("%s does not have 5 manifests", manifests)
	}
}

// A fleet has the name of the release unless another one is set, or a name made from it if that is
// not valid for a fleet.
func TestChartSetsUpAFleet(t *testing.T) {
	t.Parallel()
	long := "1" + strings.Repeat("a", 52) // the longest name of a release
	for _, test := range []struct {
		release, set string
		want         map[string]string
	}{
		{"feedbridge", "fleet.enabled=false", map[string]string{}},
		{"feedbridge", "config.fleet.name=a", map[string]string{}},
		{"feedbridge", "fleet.enabled=true", map[string]string{"FEEDBRIDGE_FLEET_NAME": "feedbridge"}},
		{"feedbridge", "fleet.enabled=true,fleet.name=shop,fleet.bus=main", map[string]string{"FEEDBRIDGE_FLEET_NAME": "shop", "FEEDBRIDGE_FLEET_BUS": "main"}},
		{"shop.v2", "fleet.enabled=true", map[string]string{"FEEDBRIDGE_FLEET_NAME": "shop-v2"}},
		{"2.shop", "fleet.enabled=true", map[string]string{"FEEDBRIDGE_FLEET_NAME": "feedbridge-2-shop"}},
		{long, "fleet.enabled=true", map[string]string{"FEEDBRIDGE_FLEET_NAME": "feedbridge-" + long}},
		{"2.shop", "fleet.enabled=true,fleet.name=shop", map[string]string{"FEEDBRIDGE_FLEET_NAME": "shop"}},
	} {
		got := map[string]string{}
		for _, e := range find[*apps.Deployment](t, decode(t, renderAs(t, test.release, plainValues, "--set", test.set))).Spec.Template.Spec.Containers[0].Env {
			if strings.HasPrefix(e.Name, "FEEDBRIDGE_FLEET_") {
				got[e.Name] = e.Value
			}
		}
		if !maps.Equal(got, test.want) {
			t.Errorf("%s, %s: the variables are %v, want %v", test.release, test.set, got, test.want)
		}
		// The configuration accepts the name; see TestFleetVariablesOfTheChart in deploy.
		if name := got["FEEDBRIDGE_FLEET_NAME"]; name != "" && (!regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(name) || len(name) > 64) {
			t.Errorf("%s is no name of a fleet", name)
		}
	}
}
