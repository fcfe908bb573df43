package daemon

import (
	"testing"
	"testing/fstest"
)

func TestMemoryOf(t *testing.T) {
	t.Parallel()
	const machine = "MemTotal:        8000000 kB\nMemFree: 1 kB\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64 // 0: not known
	}{
		{"another system", nil, 0},
		{"the machine", map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n"}, 8_000_000 << 10},
		{"version 2, in a container", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, 512 << 20},
		{"version 2, a service in a slice", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/system.slice/feedbridge.service\n",
			"sys/fs/cgroup/system.slice/feedbridge.service/memory.max": "max\n", "sys/fs/cgroup/system.slice/memory.max": "268435456\n",
		}, 256 << 20},
		{"version 2, without a limit", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n",
		}, 8_000_000 << 10},
		{"version 1", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "12:cpu,cpuacct:/\n5:memory:/docker/1f\n1:name=systemd:/\n0::/\n",
			"sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes": "1073741824\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1 << 30},
		{"version 1, in a container, with a path of the host", map[string]string{
			"proc/self/cgroup": "5:memory:/docker/1f\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
		}, 1 << 30},
		{"nonsense", map[string]string{"proc/meminfo": "MemTotal: much\n", "proc/self/cgroup": "0\n::\n0::../../x\n", "sys/fs/cgroup/memory.max": "-1"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := fstest.MapFS{}
			for name, text := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got, ok := memoryOf(root); ok != (tt.want > 0) || ok && got != tt.want {
				t.Errorf("got %d, %v, want %d", got, ok, tt.want)
			}
		})
	}
}
