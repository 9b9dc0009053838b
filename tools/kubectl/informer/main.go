// A test client with the informers of client-go: dynamic informers for every kind that discovery lists, a typed one over
// protobuf, one of metadata only, and a table. It creates, updates and deletes config maps in one namespace, and prints the
// events that the informers delivered. Usage: informer KUBECONFIG NAMESPACE.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

type seen struct {
	mutex  sync.Mutex
	events []string
}

func (s *seen) add(what string, object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if one := object.(*corev1.ConfigMap); one.Labels["informer"] != "" {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.events = append(s.events, what+" "+one.Name+" "+one.Data["k"])
	}
}

func (s *seen) all() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.events)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	protobuf := rest.CopyConfig(config)
	protobuf.ContentType = "application/vnd.kubernetes.protobuf"
	protobuf.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	typed := kubernetes.NewForConfigOrDie(protobuf)
	kinds, err := everything(typed.Discovery())
	if err != nil {
		return err
	}

	watched := &seen{}
	factory := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(namespace))
	maps := factory.Core().V1().ConfigMaps()
	_, err = maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { watched.add("added", object) },
		UpdateFunc: func(_, object any) { watched.add("updated", object) },
		DeleteFunc: func(object any) { watched.add("deleted", object) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	metas := metadatainformer.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(config), 0, namespace, nil)
	meta := metas.ForResource(configMaps)
	meta.Informer()
	metas.Start(ctx.Done())
	dynamics := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0, metav1.NamespaceAll, nil)
	for _, kind := range kinds {
		dynamics.ForResource(kind).Informer()
	}
	dynamics.Start(ctx.Done())

	factory.WaitForCacheSync(ctx.Done())
	metas.WaitForCacheSync(ctx.Done())
	var unsynced []string
	for kind, isSynced := range dynamics.WaitForCacheSync(ctx.Done()) {
		if !isSynced {
			unsynced = append(unsynced, kind.String())
		}
	}
	if err := live(ctx, typed, namespace, watched); err != nil {
		return err
	}
	table, err := columns(ctx, typed, namespace)
	if err != nil {
		return err
	}
	names := []string{}
	for len(names) != 1 && ctx.Err() == nil {
		names = labelled(meta.Informer().GetStore().ListKeys(), namespace)
		time.Sleep(20 * time.Millisecond)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"kinds": len(kinds), "unsynced": unsynced, "seen": watched.all(), "metadata": names, "columns": table,
	})
}

// Every kind that can be listed and watched, as k9s reads them.
func everything(discover discovery.DiscoveryInterface) ([]schema.GroupVersionResource, error) {
	lists, err := discover.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists)
	found, err := discovery.GroupVersionResources(lists)
	if err != nil {
		return nil, err
	}
	kinds := []schema.GroupVersionResource{}
	for kind := range found {
		kinds = append(kinds, kind)
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })
	return kinds, nil
}

// Creates two config maps, updates one and deletes the other. Each step waits until the informer has delivered it.
func live(ctx context.Context, typed kubernetes.Interface, namespace string, watched *seen) error {
	client := typed.CoreV1().ConfigMaps(namespace)
	for _, name := range []string{"one", "two"} {
		body := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"informer": "yes"}}}
		if _, err := client.Create(ctx, body, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := until(ctx, watched, "added "+name+" "); err != nil {
			return err
		}
	}
	one, err := client.Get(ctx, "one", metav1.GetOptions{})
	if err != nil {
		return err
	}
	one.Data = map[string]string{"k": "v"}
	if _, err = client.Update(ctx, one, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, watched, "updated one v"); err != nil {
		return err
	}
	none := int64(0)
	if err := client.Delete(ctx, "two", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		return err
	}
	return until(ctx, watched, "deleted two ")
}

func until(ctx context.Context, watched *seen, what string) error {
	for !slices.Contains(watched.all(), what) {
		if ctx.Err() != nil {
			return fmt.Errorf("the informer never delivered %q, only %q", what, watched.all())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func columns(ctx context.Context, typed kubernetes.Interface, namespace string) ([]string, error) {
	raw, err := typed.CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	table := metav1.Table{}
	if err := json.Unmarshal(raw, &table); err != nil {
		return nil, err
	}
	names := []string{}
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	return names, nil
}

func labelled(keys []string, namespace string) []string {
	found := []string{}
	for _, key := range keys {
		if key == namespace+"/one" || key == namespace+"/two" {
			found = append(found, key[len(namespace)+1:])
		}
	}
	return found
}
