"""One job as it is: its pods, services and nodes beside what it asks for, and the actions that can be taken."""
