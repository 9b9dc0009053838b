"""What is known of the cluster: caches fed by watches, trimmed of what nobody reads, and indexes over them."""
